"""Pre-training on the rows of a table: views, steps, and what features keep."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.data.records import Records
from fedaux.models import build, flatten_state
from fedaux.models.networks import TableMap
from fedaux.models.pretraining.store import load_or_pretrain
from fedaux.models.pretraining.tasks import TABLE_STEPS, CorruptedRows, corrupted
from fedaux.models.pretraining.trainer import pretrain
from fedaux.privacy.module_validation import validate_module

SPEC = PrototypeSpec.of("tabular")


def rows_of(count: int) -> np.ndarray:
    """Ten columns that repeat two hidden values, and ten of noise."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(count, 2)).repeat(5, axis=1)
    noise = rng.normal(size=(count, 20))
    noise[:, :10] = hidden + 0.3 * noise[:, :10]
    return noise.astype(np.float32)


def task(count: int = 230, epochs: int = 100) -> CorruptedRows:
    torch.set_num_threads(1)
    model = build(SPEC, (20,), 2, seed=0)
    aux = Records(rows_of(count))
    config = PretrainConfig(epochs=epochs)
    return CorruptedRows(model.features, model.width, aux, config, 0)


def test_corrupted_numbers_are_those_of_other_rows_in_the_same_column() -> None:
    rows = torch.arange(400.0).reshape(40, 10)
    generator = torch.Generator().manual_seed(0)
    view = corrupted(rows, generator)
    assert torch.equal(view % 10, rows % 10)
    assert 0.2 < float((view != rows).float().mean()) < 0.4


@pytest.mark.parametrize(("count", "epochs"), [(230, 100), (60, 100), (3000, 100)])
def test_few_rows_are_seen_often_enough(count: int, epochs: int) -> None:
    steps = epochs * task(count, epochs).steps
    assert steps >= TABLE_STEPS
    if count < 1000:
        assert steps <= 2 * TABLE_STEPS


def test_training_keeps_what_columns_share() -> None:
    """The features of a row tell its hidden values better than random features do."""
    trained = task(120, epochs=10)
    before = trained.run_epoch().loss
    pretrain(trained)
    assert trained.curve[-1].loss < before
    fresh = task(120)
    errors = []
    for extractor in (trained.extractor, fresh.extractor):
        with torch.no_grad():
            features = extractor(torch.tensor(rows_of(120))).numpy()
        features = features - features.mean(axis=0)
        u, _, _ = np.linalg.svd(features, full_matrices=False)
        target = rows_of(120)[:, [0, 5]]
        explained = u[:, :4].T @ (target - target.mean(axis=0))
        errors.append(1 - np.square(explained).sum() / np.square(target).sum())
    assert errors[0] < 0.9 * errors[1]


def test_columns_are_scaled_by_public_rows_and_travel_with_the_weights(
    tmp_path: Path,
) -> None:
    aux = Records(rows_of(120) * 7 + 3)
    model = build(SPEC, aux.shape, 2, seed=1)
    config = PretrainConfig(epochs=2)
    path, cached = load_or_pretrain(SPEC, model, aux, config, tmp_path, lambda _: None)
    assert not cached
    assert isinstance(model.features, TableMap)
    assert np.allclose(model.features.columns.mean, aux.x.mean(axis=0), atol=1e-4)
    stored = load_file(path)
    sent = flatten_state(model.features)
    assert all(np.array_equal(stored[name], sent[name]) for name in sent)
    other = load_or_pretrain(
        SPEC, model, aux, replace(config, seed=1), tmp_path, lambda _: None
    )
    assert other[0] != path


def test_a_site_takes_it_and_images_are_refused() -> None:
    model = build(SPEC, (20,), 2, seed=0)
    validate_module(model.features)
    images = Records(np.zeros((4, 8, 8, 1), np.uint8))
    with pytest.raises(ValueError, match="'tabular' is for rows of numbers"):
        CorruptedRows(model.features, model.width, images, PretrainConfig(), 0)

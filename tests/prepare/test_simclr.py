"""P1: the contrastive loss against a naive version, and pre-training that learns, repeats and needs no label."""

import numpy as np
import pytest
import torch

from fedaux.config import PretrainConfig
from fedaux.data.records import Records
from fedaux.data.sources import open_source
from fedaux.prepare.features import outputs
from fedaux.prepare.simclr import nt_xent, pretrain
from fedaux.prototypes import PrototypeSpec, build, dump


@pytest.mark.parametrize("size", [2, 5, 16])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_nt_xent_is_the_papers_sum(size: int, temperature: float) -> None:
    rng = np.random.default_rng(size)
    views = rng.normal(size=(2 * size, 7))
    naive = 0.0
    for i in range(2 * size):
        partner = (i + size) % (2 * size)
        similar = [
            np.exp(views[i] @ views[j] / np.linalg.norm(views[i]) / np.linalg.norm(views[j]) / temperature)
            for j in range(2 * size)
        ]
        naive -= np.log(similar[partner] / sum(similar[j] for j in range(2 * size) if j != i)) / (2 * size)
    found = nt_xent(torch.tensor(views[:size]), torch.tensor(views[size:]), temperature)
    assert found.item() == pytest.approx(naive, rel=1e-9)


def trained(epochs: int, seed: int = 0) -> tuple[torch.nn.Module, list[float], Records]:
    aux = open_source("digits").train.take(np.arange(400)).unlabelled()
    model = build(PrototypeSpec.of("cnn", width=8, features=32), aux.shape, 10, seed=1)
    config = PretrainConfig(epochs=epochs, batch=100, crop=0.5, flip=False)
    losses = pretrain(model.features, model.width, aux, config, seed, lambda epoch, loss: None)
    return model.features, losses, aux


def test_pretraining_learns_and_repeats_exactly() -> None:
    first, losses, _ = trained(8)
    again, _, _ = trained(8)
    other, _, _ = trained(8, seed=1)
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.3
    assert np.array_equal(dump(first)["parameters"], dump(again)["parameters"])
    assert not np.array_equal(dump(first)["parameters"], dump(other)["parameters"])


def test_pretrained_features_tell_classes_apart_better_than_random_ones() -> None:
    """Nearest neighbour on digits that were not pre-trained on; labels serve this measurement only."""
    corpus = open_source("digits").train
    seen, asked = corpus.take(np.arange(400, 1000)), corpus.take(np.arange(1000, 1797))
    accuracies = []
    for epochs in (0, 20):
        extractor, _, _ = trained(epochs)
        known, new = (outputs(extractor, part) for part in (seen, asked))
        known, new = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (known, new))
        accuracies.append(float((seen.labels[(new @ known.T).argmax(axis=1)] == asked.labels).mean()))
    assert accuracies[1] > accuracies[0]


def test_data_that_are_no_images_are_refused_with_the_way_out() -> None:
    rows = Records(np.zeros((10, 4), np.float32))
    with pytest.raises(ValueError, match=r"pretrain\.epochs = 0"):
        pretrain(torch.nn.Identity(), 4, rows, PretrainConfig(epochs=1), 0, lambda epoch, loss: None)

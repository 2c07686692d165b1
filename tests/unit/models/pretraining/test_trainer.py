"""P1's loop: every record once an epoch, the rate on schedule, checkpoints that go on
to the same bits; metrics.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.core.rng import seeded_torch
from fedaux.data.records import Records
from fedaux.data.sources import open_source
from fedaux.models import Prototype, build, flatten_state
from fedaux.models.compute import Compute, place
from fedaux.models.pretraining.tasks import SimCLR
from fedaux.models.pretraining.trainer import (
    FeatureQuality,
    SelfSupervisedTask,
    feature_quality,
    linear_probe,
    pretrain,
    warmup_cosine,
)


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Stopped after three of six epochs, in the middle of warm-up's end: curve and
    weights as if it had not been.
    """
    aux = open_source("digits").train.take(np.arange(200)).unlabelled()
    config = PretrainConfig(epochs=6, batch_size=64, min_crop_area=0.5, flip=False)

    def network() -> Prototype:
        return build(
            PrototypeSpec.of("cnn", width=8, features=32, norm="batch"),
            aux.shape,
            10,
            seed=1,
        )

    whole = network()
    curve = pretrain(SimCLR(whole.features, whole.width, aux, config, seed=5))
    cut = network()
    part = SimCLR(cut.features, cut.width, aux, config, seed=5)
    for _ in range(3):
        part.run_epoch()
    part.save(tmp_path / "checkpoint")
    fresh = network()
    rest = pretrain(
        SimCLR(fresh.features, fresh.width, aux, config, seed=5),
        checkpoint=tmp_path / "checkpoint",
    )
    assert [(one.loss, one.quality) for one in rest] == [
        (one.loss, one.quality) for one in curve
    ]
    assert all(
        np.array_equal(a, b)
        for a, b in zip(
            flatten_state(whole.features).values(),
            flatten_state(fresh.features).values(),
            strict=True,
        )
    )


def test_the_rate_rises_then_falls_to_nothing() -> None:
    rates = [warmup_cosine(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.01


def test_bfloat16_learns_about_the_same() -> None:
    aux = open_source("digits").train.take(np.arange(200)).unlabelled()
    losses = []
    for precision in ("float32", "bfloat16"):
        model = build(
            PrototypeSpec.of("cnn", width=8, features=32), aux.shape, 10, seed=1
        )
        config = PretrainConfig(epochs=4, batch_size=64, min_crop_area=0.5, flip=False)
        place(model, Compute(precision=precision))
        losses.append(
            pretrain(SimCLR(model.features, model.width, aux, config, seed=5))[-1].loss
        )
        assert flatten_state(model.features)["parameters"].dtype == np.float32
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], abs=0.05)


class Regression(SelfSupervisedTask):
    """A task of the tests: predict the first column from the others; remembers what it
    was given.
    """

    def __init__(self, aux: Records, config: PretrainConfig) -> None:
        with seeded_torch(0):
            super().__init__(
                torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), aux, config, seed=5
            )
        self.seen: list[list[int]] = []
        self.rates: list[float] = []

    def backward(
        self, rows: np.ndarray, generator: torch.Generator, seed: int
    ) -> float:
        self.seen.append(rows.tolist())
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        x = self.aux.tensor(rows)
        loss = (self.model(x[:, 1:])[:, 0] - x[:, 0]).square().mean()
        loss.backward()
        return loss.item()

    def quality(self, rows: np.ndarray, generator: torch.Generator) -> FeatureQuality:
        assert not self.model.training
        return FeatureQuality(0.0, 0.0, float(len(rows)))


def regression(epochs: int) -> Regression:
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    rows[:, 0] = rows[:, 1:].sum(axis=1)
    return Regression(
        Records(rows), PretrainConfig(epochs=epochs, batch_size=16, lr=1e-2)
    )


def test_every_record_is_seen_once_an_epoch_at_the_scheduled_rate() -> None:
    task, epochs = regression(3), []
    curve = pretrain(task, on_epoch=epochs.append)
    assert epochs == curve
    assert [one.epoch for one in curve] == [1, 2, 3]
    steps = len(task.seen) // 3
    for epoch in range(3):
        rows = task.seen[epoch * steps : (epoch + 1) * steps]
        assert sorted(row for batch in rows for row in batch) == list(range(50))
    assert task.seen[:steps] != task.seen[steps : 2 * steps]  # shuffled anew
    assert task.rates == pytest.approx(
        [1e-2 * warmup_cosine(step, 3 * steps) for step in range(3 * steps)]
    )
    assert curve[-1].loss < curve[0].loss


def test_the_loss_of_an_epoch_weighs_its_records_alike() -> None:
    task = regression(1)
    with torch.no_grad():
        for group in task.optimizer.param_groups:
            # nothing is learned, so that the loss can be computed afterwards
            group["params"].clear()
    found = task.run_epoch().loss
    x = task.aux.tensor()
    with torch.no_grad():
        naive = (task.model(x[:, 1:])[:, 0] - x[:, 0]).square().mean()
    assert found == pytest.approx(float(naive), rel=1e-5)


def test_a_checkpoint_is_written_after_every_epoch_and_taken_up(tmp_path: Path) -> None:
    file, sizes = tmp_path / "checkpoint", []
    pretrain(
        regression(2),
        on_epoch=lambda epoch: sizes.append(file.exists()),
        checkpoint=file,
    )
    assert sizes == [False, True]
    again = regression(5)
    curve = pretrain(again, checkpoint=file)
    assert len(curve) == 5
    assert len(again.seen) == 3 * 4  # three more epochs of four batches
    finished = regression(2)
    pretrain(finished, checkpoint=file)
    assert finished.seen == []  # more epochs are done than it asks for


def test_against_naive_loops() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    one, two = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second)
    )
    found = feature_quality(torch.tensor(first), torch.tensor(second))
    assert found.alignment == pytest.approx(
        np.mean([np.sum((a - b) ** 2) for a, b in zip(one, two, strict=True)])
    )
    pairs = [
        np.exp(-2 * np.sum((one[i] - one[j]) ** 2)) for i in range(9) for j in range(i)
    ]
    assert found.uniformity == pytest.approx(np.log(np.mean(pairs)))


def test_known_cases() -> None:
    same = torch.ones(8, 3)
    assert feature_quality(same, same).alignment == pytest.approx(0.0)
    assert feature_quality(same, same).uniformity == pytest.approx(0.0)
    rows = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0))
    assert feature_quality(rows, rows).rank == pytest.approx(5.0, abs=0.05)
    flat = rows * torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    assert feature_quality(flat, flat).rank == pytest.approx(2.0, abs=0.05)


def test_the_probe_standardises_flattens_and_uses_labels() -> None:
    rng = np.random.default_rng(0)

    def blobs(separation: float) -> Records:
        labels = rng.integers(0, 2, 400)
        rows = rng.normal(size=(400, 2, 3)) + separation * labels[:, None, None]
        # scales that only standardising makes comparable
        rows *= np.array([1.0, 100.0, 0.01])
        rows[:, 1, 2] = 7.0  # a constant column must not divide by nothing
        return Records(rows.astype(np.float32), labels)

    assert linear_probe(blobs(1.5), blobs(1.5)) > 0.9
    assert 0.4 < linear_probe(blobs(0.0), blobs(0.0)) < 0.6

"""T3: a student learns its ensemble."""

from typing import Any

import numpy as np
import pytest
import torch

from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.methods.contribution import Ensemble
from fedaux.models import Prototype, build, flatten_state
from fedaux.models.inference import predict
from fedaux.server.distill import (
    distill,
    distillation_loss,
)


def test_a_student_learns_its_teacher_and_keeps_its_buffers() -> None:
    """Its BatchNorm statistics are the averaged ones of private data; auxiliary data
    must not overwrite them.
    """
    rng = np.random.default_rng(0)
    public = Records((5 + rng.normal(size=(200, 4))).astype(np.float32))
    spec = PrototypeSpec.of("mlp", hidden=32, features=16, norm="batch")
    teacher, student = (build(spec, (4,), 3, seed) for seed in (1, 2))
    ensemble = Ensemble.of(3 * predict(teacher, public), np.ones(200))
    buffers = {
        name: flatten_state(student)[name].copy() for name in ("buffers", "counters")
    }
    generator = torch.Generator().manual_seed(0)
    first = distill(
        student,
        public,
        ensemble,
        DistillConfig(lr=1e-2, batch_size=32),
        7,  # an epoch
        generator,
    )
    last = distill(
        student,
        public,
        ensemble,
        DistillConfig(lr=1e-2, batch_size=32),
        140,
        generator,
    )
    assert last < 0.3 * first
    assert all(
        np.array_equal(flatten_state(student)[name], kept)
        for name, kept in buffers.items()
    )


def test_distillation_is_the_mean_kl_divergence() -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(4, 3)), rng.dirichlet(np.ones(3), size=4)
    naive = 0.0
    for logits, target in zip(student, teacher, strict=True):
        predicted = np.exp(logits) / np.exp(logits).sum()
        naive += (
            sum(t * np.log(t / p) for t, p in zip(target, predicted, strict=True)) / 4
        )
    assert distillation_loss(
        torch.tensor(student), torch.tensor(teacher)
    ).item() == pytest.approx(naive, rel=1e-12)


def distilled(seed: int = 0, **settings: Any) -> tuple[Prototype, float]:
    """A student with BatchNorm after distillation from a teacher."""
    public = Records(
        (5 + np.random.default_rng(0).normal(size=(200, 4))).astype(np.float32)
    )
    spec = PrototypeSpec.of("mlp", hidden=32, features=16, norm="batch")
    teacher, student = (build(spec, (4,), 3, seed) for seed in (1, 2))
    ensemble = Ensemble.of(3 * predict(teacher, public), np.ones(200))
    config = DistillConfig(**({"lr": 1e-2, "batch_size": 32} | settings))
    steps = config.steps_in_round(1, batches_an_epoch=7)
    generator = torch.Generator().manual_seed(seed)
    return student, distill(student, public, ensemble, config, steps, generator)


def test_so_many_steps_are_so_many_epochs() -> None:
    by_epochs, by_steps = distilled(epochs=3), distilled(steps=3 * 7)
    assert by_epochs[1] == by_steps[1]
    assert np.array_equal(
        flatten_state(by_epochs[0])["parameters"],
        flatten_state(by_steps[0])["parameters"],
    )
    assert not np.array_equal(
        flatten_state(distilled(steps=20)[0])["parameters"],
        flatten_state(by_steps[0])["parameters"],
    )


def test_in_train_mode_statistics_move_to_the_public_data() -> None:
    kept, moved = (
        flatten_state(distilled(epochs=5, train_mode=mode)[0])["buffers"]
        for mode in (False, True)
    )
    assert not np.allclose(kept, moved)


SPEC = PrototypeSpec.of("mlp", hidden=8, features=6)


def sample(count: int = 100) -> tuple[Prototype, Records, Ensemble]:
    public = Records(
        np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    )
    return (
        build(SPEC, (4,), 3, 2),
        public,
        Ensemble.of(3 * predict(build(SPEC, (4,), 3, 1), public)),
    )

"""T3: a student learns its ensemble."""

import numpy as np
import pytest
import torch

from fedaux.algorithms.aggregate import Ensemble
from fedaux.algorithms.distill import distill, distillation_loss
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import build, flatten_state
from fedaux.models.inference import predict


def test_a_student_learns_its_teacher_and_keeps_its_buffers() -> None:
    """Its BatchNorm statistics are the averaged ones of private data; auxiliary data must not overwrite them."""
    rng = np.random.default_rng(0)
    public = Records((5 + rng.normal(size=(200, 4))).astype(np.float32))
    spec = PrototypeSpec.of("mlp", hidden=32, features=16, norm="batch")
    teacher, student = (build(spec, (4,), 3, seed) for seed in (1, 2))
    ensemble = Ensemble.of(3 * predict(teacher, public), np.ones(200))
    buffers = {name: flatten_state(student)[name].copy() for name in ("buffers", "counters")}
    generator = torch.Generator().manual_seed(0)
    first = distill(student, public, ensemble, epochs=1, lr=1e-2, batch_size=32, generator=generator)
    last = distill(student, public, ensemble, epochs=20, lr=1e-2, batch_size=32, generator=generator)
    assert last < 0.3 * first
    assert all(np.array_equal(flatten_state(student)[name], kept) for name, kept in buffers.items())


def test_distillation_is_the_mean_kl_divergence() -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(4, 3)), rng.dirichlet(np.ones(3), size=4)
    naive = 0.0
    for logits, target in zip(student, teacher, strict=True):
        predicted = np.exp(logits) / np.exp(logits).sum()
        naive += sum(t * np.log(t / p) for t, p in zip(target, predicted, strict=True)) / 4
    assert distillation_loss(torch.tensor(student), torch.tensor(teacher)).item() == pytest.approx(naive, rel=1e-12)


def test_a_perfect_student_loses_nothing() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert distillation_loss(logits, logits.softmax(dim=1)).item() == pytest.approx(0.0, abs=1e-12)

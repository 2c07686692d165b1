"""T3: a student learns its ensemble."""

import numpy as np
import torch

from fedaux.algorithms.aggregate import Ensemble
from fedaux.algorithms.distill import distill
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

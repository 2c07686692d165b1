"""T3: a student learns its ensemble."""

from typing import Any

import numpy as np
import pytest
import torch

from fedaux.algorithms.aggregate import Ensemble
from fedaux.algorithms.distill import distill, distillation_loss, public_loss, starts
from fedaux.algorithms.learners import Learners
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


SPEC = PrototypeSpec.of("mlp", hidden=8, features=6)


def sample(count: int = 100) -> tuple[Any, Records, Ensemble]:
    public = Records(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))
    return build(SPEC, (4,), 3, 2), public, Ensemble.of(3 * predict(build(SPEC, (4,), 3, 1), public))


def distilled(**settings: Any) -> np.ndarray:
    student, public, ensemble = sample()
    settings = {"epochs": 1, "lr": 1e-2, "batch_size": 30, "generator": torch.Generator().manual_seed(0), **settings}
    distill(student, public, ensemble, **settings)
    return flatten_state(student)["parameters"]


def test_steps_go_on_over_epochs_and_stop_within_one() -> None:
    assert np.array_equal(distilled(steps=8), distilled(epochs=2))
    student, public, ensemble = sample()
    descent, generator, made = torch.optim.Adam(student.parameters(), 1e-2), torch.Generator().manual_seed(0), 0
    while made < 6:
        for rows in torch.randperm(100, generator=generator).split(30):
            if made < 6:
                soft_labels = torch.from_numpy(ensemble.soft_labels(rows.numpy()))
                loss = distillation_loss(student(torch.from_numpy(public.gather(rows.numpy()))), soft_labels)
                descent.zero_grad()
                loss.backward()
                descent.step()
                made += 1
    assert distilled(steps=6) == pytest.approx(flatten_state(student)["parameters"], abs=1e-5)
    assert not np.allclose(distilled(steps=6), distilled(steps=8))


def test_it_stops_where_the_loss_on_examples_held_out_is_lowest() -> None:
    """At a rate at which every epoch makes things worse the student is returned as it came, after `patience` epochs."""
    student, public, ensemble = sample()
    before, generator = flatten_state(student)["parameters"], torch.Generator().manual_seed(0)
    distill(student, public, ensemble, epochs=10**9, lr=1e3, batch_size=30, generator=generator, patience=2)
    assert np.array_equal(flatten_state(student)["parameters"], before)
    again = torch.Generator().manual_seed(0)
    for size in (100, 90, 90):
        torch.randperm(size, generator=again)
    assert torch.equal(generator.get_state(), again.get_state())  # two epochs on nine tenths, and no more


def test_patience_does_not_stop_a_student_that_learns() -> None:
    student, public, ensemble = sample()
    rows = np.arange(100)
    before = public_loss(student, public, ensemble, rows)
    settings = {"epochs": 40, "lr": 1e-2, "batch_size": 30, "generator": torch.Generator().manual_seed(0)}
    distill(student, public, ensemble, patience=3, **settings)  # type: ignore[arg-type]
    assert public_loss(student, public, ensemble, rows) < 0.3 * before


def test_public_loss_is_the_loss_on_those_rows() -> None:
    student, public, ensemble = sample()
    rows = np.array([3, 90, 41])
    with torch.no_grad():
        naive = distillation_loss(
            student(torch.from_numpy(public.gather(rows))), torch.from_numpy(ensemble.soft_labels(rows))
        )
    assert public_loss(student, public, ensemble, rows) == pytest.approx(naive.item(), rel=1e-5)


def test_students_start_from_the_average_from_themselves_or_from_the_better() -> None:
    _, public, ensemble = sample()
    good, bad = (flatten_state(build(SPEC, (4,), 3, seed)) for seed in (1, 2))  # the first is nearly the ensemble's
    learners = Learners({}, {}, {label: build(SPEC, (4,), 3, 3) for label in "pq"})

    def chosen(which: str) -> list[bool]:
        averages, students = {"p": good, "q": bad}, {"p": bad, "q": good}
        found = starts(learners, averages, students, lambda label: public, ensemble, which)
        return [found[label] is good for label in "pq"]

    assert chosen("average") == [True, False]
    assert chosen("student") == [False, True]
    assert chosen("better") == [True, True]

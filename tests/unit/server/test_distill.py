"""T3: a student learns its ensemble."""

import itertools
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
    SWA_EVERY,
    Average,
    Best,
    distill,
    distillation_loss,
    public_loss,
    soft_labels,
    starts,
)
from fedaux.server.networks import Learners


def test_a_student_learns_its_teacher_and_keeps_its_buffers() -> None:
    """Its BatchNorm statistics are the averaged ones of private data; auxiliary data must not overwrite them."""
    rng = np.random.default_rng(0)
    public = Records((5 + rng.normal(size=(200, 4))).astype(np.float32))
    spec = PrototypeSpec.of("mlp", hidden=32, features=16, norm="batch")
    teacher, student = (build(spec, (4,), 3, seed) for seed in (1, 2))
    ensemble = Ensemble.of(3 * predict(teacher, public), np.ones(200))
    buffers = {name: flatten_state(student)[name].copy() for name in ("buffers", "counters")}
    generator = torch.Generator().manual_seed(0)
    first = distill(student, public, ensemble, DistillConfig(epochs=1, lr=1e-2, batch_size=32), generator)
    last = distill(student, public, ensemble, DistillConfig(epochs=20, lr=1e-2, batch_size=32), generator)
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


def naive_labels(teachers: list[Any], combine: str, temperature: float) -> list[list[float]]:
    """Of each example, written out."""
    found = []
    for row in range(len(teachers[0])):
        if combine == "logits":
            mean = [sum(t[row][c] for t in teachers) / len(teachers) for c in range(3)]
            labels = [np.exp(m) / sum(np.exp(x) for x in mean) for m in mean]
        else:
            softmaxes = [[np.exp(x) / sum(np.exp(y) for y in t[row]) for x in t[row]] for t in teachers]
            labels = [sum(p[c] for p in softmaxes) / len(teachers) for c in range(3)]
        sharper = [label ** (1 / temperature) for label in labels]
        found.append([label / sum(sharper) for label in sharper])
    return found


@pytest.mark.parametrize("combine", ["logits", "probabilities"])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_soft_labels_are_a_mean_of_logits_or_of_probabilities_and_sharper_below_one(
    combine: str, temperature: float
) -> None:
    teachers = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
    ensemble = Ensemble.empty(6, 3)
    for logits in teachers:
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        ensemble.merge(Ensemble.of(logits if combine == "logits" else probabilities))
    settings = DistillConfig(combine=combine, temperature=temperature)
    rows = np.array([4, 1, 5])
    expected = np.array(naive_labels(list(teachers.astype(float)), combine, temperature))[rows]
    assert np.allclose(soft_labels(ensemble, rows, settings), expected, atol=1e-6)


def distilled(seed: int = 0, **settings: Any) -> tuple[Prototype, float]:
    """A student with BatchNorm after distillation from a teacher."""
    public = Records((5 + np.random.default_rng(0).normal(size=(200, 4))).astype(np.float32))
    spec = PrototypeSpec.of("mlp", hidden=32, features=16, norm="batch")
    teacher, student = (build(spec, (4,), 3, seed) for seed in (1, 2))
    ensemble = Ensemble.of(3 * predict(teacher, public), np.ones(200))
    config = DistillConfig(**({"lr": 1e-2, "batch_size": 32} | settings))
    return student, distill(student, public, ensemble, config, torch.Generator().manual_seed(seed))


def test_so_many_steps_are_so_many_epochs() -> None:
    by_epochs, by_steps = distilled(epochs=3), distilled(steps=3 * 7)
    assert by_epochs[1] == by_steps[1]
    assert np.array_equal(flatten_state(by_epochs[0])["parameters"], flatten_state(by_steps[0])["parameters"])
    assert not np.array_equal(
        flatten_state(distilled(steps=20)[0])["parameters"], flatten_state(by_steps[0])["parameters"]
    )


def test_in_train_mode_statistics_move_to_the_public_data() -> None:
    kept, moved = (flatten_state(distilled(epochs=5, train_mode=mode)[0])["buffers"] for mode in (False, True))
    assert not np.allclose(kept, moved)


def test_students_are_averaged_from_a_step_on() -> None:
    """The mean of the same run stopped after 25, 50, 75 and 100 steps, but for those before the start."""
    stops = [distilled(steps=step, optimizer="sgd", momentum=0.5)[0] for step in (50, 75, 100)]
    assert SWA_EVERY == 25
    expected = np.mean([flatten_state(one)["parameters"] for one in stops], axis=0)
    averaged = distilled(steps=100, optimizer="sgd", momentum=0.5, average_from=0.25)[0]
    assert np.allclose(flatten_state(averaged)["parameters"], expected, atol=1e-6)
    early = Average(1000.0)
    early.see(50, stops[0])
    assert early.count == 0


def test_patience_keeps_the_best_student_and_stops() -> None:
    model = build(PrototypeSpec.of("mlp", hidden=2, features=2, norm="none"), (4,), 3, 0)
    losses = itertools.chain([3.0, 2.0], itertools.repeat(2.05))  # one of every second step
    best, kept, made = Best(patience=20), [], 0
    for step in range(1, 100):
        with torch.no_grad():
            next(model.parameters()).fill_(step)
        if step == 4:
            kept.append(flatten_state(model)["parameters"].copy())
        made = step
        if best.stops(step, model, lambda: next(losses)):
            break
    assert made == 4 + 20  # the second look, at step 4, was the best
    best.load(model)
    assert np.array_equal(flatten_state(model)["parameters"], kept[0])


def test_early_stopping_ends_a_distillation_that_has_nothing_more_to_learn() -> None:
    student, loss = distilled(steps=5000, patience=40, lr=0.05)
    assert loss < 0.01
    assert np.isfinite(flatten_state(student)["parameters"]).all()


SPEC = PrototypeSpec.of("mlp", hidden=8, features=6)


def sample(count: int = 100) -> tuple[Prototype, Records, Ensemble]:
    public = Records(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))
    return build(SPEC, (4,), 3, 2), public, Ensemble.of(3 * predict(build(SPEC, (4,), 3, 1), public))


def test_public_loss_is_the_loss_on_those_rows() -> None:
    student, public, ensemble = sample()
    rows, settings = np.array([3, 90, 41]), DistillConfig(temperature=0.5)
    with torch.no_grad():
        logits = student.eval()(torch.from_numpy(public.gather(rows)))
        naive = distillation_loss(logits, torch.from_numpy(soft_labels(ensemble, rows, settings)))
    assert public_loss(student, public, ensemble, rows, settings) == pytest.approx(naive.item(), rel=1e-5)


def test_students_start_from_the_average_from_themselves_or_from_the_better() -> None:
    _, public, ensemble = sample()
    good, bad = (flatten_state(build(SPEC, (4,), 3, seed)) for seed in (1, 2))  # the first is nearly the ensemble's
    learners = Learners({}, {}, {label: build(SPEC, (4,), 3, 3) for label in "pq"})

    def chosen(which: str) -> list[bool]:
        averages, students = {"p": good, "q": bad}, {"p": bad, "q": good}
        found = starts(learners, averages, students, lambda label: public, ensemble, DistillConfig(start=which))
        return [found[label] is good for label in "pq"]

    assert chosen("average") == [True, False]
    assert chosen("student") == [False, True]
    assert chosen("better") == [True, True]

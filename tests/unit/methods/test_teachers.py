"""The teacher pass is a function of a model and records: in eval mode, whatever was loaded before."""

import numpy as np
import pytest
import torch

from fedaux.config.distillation import DistillConfig
from fedaux.config.methods import find_method
from fedaux.data.records import Records
from fedaux.methods.contribution import Ensemble, ModelSum
from fedaux.methods.hooks import with_extra
from fedaux.methods.teachers import bayesian_teachers, normalised, own_weights, teacher_logits, variance_weights
from fedaux.models import build, flatten_state
from helpers.scripted import MLP

RECORDS = Records(np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32))


def test_logits_are_those_of_the_model_with_these_weights() -> None:
    resident, teacher = build(MLP, (4,), 3, seed=1), build(MLP, (4,), 3, seed=2)
    resident.train()
    found = teacher_logits(resident, flatten_state(teacher), RECORDS)
    with torch.no_grad():
        expected = teacher.eval()(RECORDS.tensor()).numpy()
    assert np.allclose(found, expected, atol=1e-6)
    assert np.array_equal(teacher_logits(resident, flatten_state(teacher), RECORDS), found)


def test_fed_ets_ensemble_against_its_equations() -> None:
    """Σ_i Var(f_i(x)) f_i(x) / Σ_i Var(f_i(x)), written out for every example; one teacher knows nothing of them."""
    logits = np.random.default_rng(1).normal(scale=[[[0.1]], [[3.0]], [[20.0]]], size=(3, 5, 4)).astype(np.float32)
    logits[0, 2] = 7.0
    ensemble = Ensemble.empty(5, 4)
    for teacher in logits:
        ensemble.merge(Ensemble.of(teacher, own_weights(find_method("fedet+p"), teacher)))
    for x in range(5):
        variances = [sum((f - sum(row[x]) / 4) ** 2 for f in row[x]) / 4 for row in logits.astype(float)]
        expected = sum(v * row[x].astype(float) for v, row in zip(variances, logits, strict=True)) / sum(variances)
        assert np.allclose(ensemble.mean(slice(x, x + 1))[0], expected, rtol=1e-4)


def test_variance_weights_stay_within_what_an_ensemble_adds() -> None:
    weights = variance_weights(np.array([[0.0, 0.0], [1.0, -1.0], [1e6, -1e6]]))
    assert 0 < weights[0] < weights[1] < weights[2] == 1
    assert weights[1] == 2.0**-10


@pytest.mark.parametrize("name", ["feddf", "fedbe+p", "fedaux"])
def test_logits_weigh_no_other_teachers(name: str) -> None:
    assert own_weights(find_method(name), np.eye(3)) is None


SIZES = (3, 1)  # of the arrays that make up four parameters


def summed(*clients: list[float], sent: list[float] | None = None) -> ModelSum:
    """Clients with equally many records."""
    models = ModelSum()
    for values in clients:
        arrays = {"parameters": np.array(values, np.float32)}
        if sent is not None:
            arrays = with_extra(arrays, normalised(np.array(sent), arrays["parameters"], SIZES))
        models.merge(ModelSum.of(arrays, 10, second_moment=True))
    return models


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_bayesian_teachers_are_the_average_and_draws_around_it(scale: float) -> None:
    models, settings = summed([1.0] * 4, [3.0] * 4), DistillConfig(samples=500, draw_scale=scale)
    average, *draws = bayesian_teachers(models, {}, SIZES, settings, np.random.default_rng(0))
    assert average["parameters"].tolist() == [2.0] * 4
    assert len(draws) == 500
    assert np.allclose(np.std([each["parameters"] for each in draws]), scale, atol=0.1 * scale)


def test_draws_over_normalised_updates_against_their_equations() -> None:
    """Each array of the network by itself: mean and deviation of Δ/‖Δ‖ over clients, times the mean of ‖Δ‖."""
    sent, clients = [1.0, 0.0, -1.0, 2.0], [[4.0, 4.0, -1.0, 2.5], [1.0, 2.0, -1.0, 1.0], [1.0, 0.0, -1.0, 2.0]]
    settings = DistillConfig(samples=4000, draws="updates", draw_scale=0.5)
    models = summed(*clients, sent=sent)
    arrays = {"parameters": np.array(sent, np.float32)}
    average, *draws = bayesian_teachers(models, arrays, SIZES, settings, np.random.default_rng(0))
    assert average.keys() == draws[0].keys() == {"parameters"}
    assert np.allclose(average["parameters"], np.mean(clients, axis=0))
    means, deviations = [], []
    for start, stop in ((0, 3), (3, 4)):
        updates = [[client[i] - sent[i] for i in range(start, stop)] for client in clients]
        norms = [sum(x * x for x in update) ** 0.5 for update in updates]
        units = [[x / norm if norm else 0.0 for x in update] for update, norm in zip(updates, norms, strict=True)]
        length = sum(norms) / 3
        for i in range(stop - start):
            values = [unit[i] for unit in units]
            means.append(sent[start + i] + length * sum(values) / 3)
            deviations.append(0.5 * length * float(np.std(values)))
    found = np.array([each["parameters"] for each in draws])
    assert np.allclose(found.mean(axis=0), means, atol=0.06)
    assert np.allclose(found.std(axis=0), deviations, atol=0.05)
    assert min(deviations[:2]) > 0.3  # far more than the tolerance

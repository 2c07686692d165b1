"""The teacher pass is a function of a model and records: in eval mode, whatever was
loaded before.
"""

import numpy as np
import torch

from fedaux.config.methods import find_method
from fedaux.data.records import Records
from fedaux.methods.contribution import Ensemble
from fedaux.methods.teachers import logit_weights, teacher_logits, variance_weights
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
    assert np.array_equal(
        teacher_logits(resident, flatten_state(teacher), RECORDS), found
    )


def test_fed_ets_ensemble_against_its_equations() -> None:
    """Σ_i Var(f_i(x)) f_i(x) / Σ_i Var(f_i(x)), written out for every example; one
    teacher knows nothing of them.
    """
    logits = (
        np.random.default_rng(1)
        .normal(scale=[[[0.1]], [[3.0]], [[20.0]]], size=(3, 5, 4))
        .astype(np.float32)
    )
    logits[0, 2] = 7.0
    ensemble = Ensemble.empty(5, 4)
    for teacher in logits:
        ensemble.merge(
            Ensemble.of(teacher, logit_weights(find_method("fedet+p"), teacher))
        )
    for x in range(5):
        variances = [
            sum((f - sum(row[x]) / 4) ** 2 for f in row[x]) / 4
            for row in logits.astype(float)
        ]
        expected = sum(
            v * row[x].astype(float) for v, row in zip(variances, logits, strict=True)
        ) / sum(variances)
        assert np.allclose(ensemble.mean(slice(x, x + 1))[0], expected, rtol=1e-4)


def test_variance_weights_stay_within_what_an_ensemble_adds() -> None:
    weights = variance_weights(np.array([[0.0, 0.0], [1.0, -1.0], [1e6, -1e6]]))
    assert 0 < weights[0] < weights[1] < weights[2] == 1
    assert weights[1] == 2.0**-10

"""The teacher pass is a function of a model and records: in eval mode, whatever was loaded before."""

import numpy as np
import torch

from fedaux.algorithms.aggregate import ModelSum
from fedaux.algorithms.teachers import bayesian_teachers, teacher_logits
from fedaux.data.records import Records
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


def test_bayesian_teachers_are_the_average_and_draws_around_it() -> None:
    models = ModelSum()
    for value in (1.0, 3.0):
        models.merge(ModelSum.of({"parameters": np.full(4, value, np.float32)}, 10, second_moment=True))
    average, *draws = bayesian_teachers(models, 500, np.random.default_rng(0))
    assert average["parameters"].tolist() == [2.0] * 4
    assert len(draws) == 500
    assert np.allclose(np.std([each["parameters"] for each in draws]), 1.0, atol=0.1)

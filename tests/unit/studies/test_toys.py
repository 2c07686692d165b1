"""The toys of the paper: their arithmetic against loops, and what they are to show."""

import numpy as np
import pytest
from studies.toys import (
    distance,
    gaussians,
    iris,
    mean_answer,
    normalised,
    quadratic,
)


def test_arithmetic_against_loops() -> None:
    rng = np.random.default_rng(0)
    answers, weights = rng.random((3, 4, 2)), rng.random((3, 4))
    for row in range(4):
        total = sum(weights[i, row] for i in range(3))
        naive = [
            sum(weights[i, row] * answers[i, row, c] for i in range(3)) / total
            for c in range(2)
        ]
        assert mean_answer(answers, weights)[row] == pytest.approx(naive)
        assert normalised(weights)[:, row].sum() == pytest.approx(1)
    assert quadratic(np.array([[2.0, 3.0]])).tolist() == [[2, 3, 4, 6, 9]]


def test_the_distance_is_between_nothing_and_one() -> None:
    one, other = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])
    assert (distance(one, one), distance(one, other)) == (0.0, 1.0)


def test_weights_of_a_kernel_density_find_iris() -> None:
    found = iris(0)
    assert found["kernel density"] > 0.9 > 0.7 > found["equal weights"]


def test_scores_are_the_weights_of_theory_until_they_are_regularised() -> None:
    found = list(gaussians(0).values())
    equal, plain, odds, regularised, noisy, embedding = found
    assert max(plain, odds, embedding) < 0.05
    assert min(equal, regularised, noisy) > 0.6

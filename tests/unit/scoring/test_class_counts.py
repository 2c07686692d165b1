"""Classes that noise hides are named, and classes that are there are not."""

import numpy as np
import pytest

from fedaux.scoring.class_counts import DEVIATIONS, unknown_classes
from fedaux.scoring.embedding import ClassValues


def released(
    counts: np.ndarray, noise: float, rng: np.random.Generator
) -> list[ClassValues]:
    noisy = counts + rng.normal(0, noise, counts.shape)
    return [
        ClassValues(np.zeros((counts.shape[1], 2)), own, noise, noise, 1.0)
        for own in noisy
    ]


def test_a_class_that_noise_explains_is_named_with_its_count() -> None:
    values = ClassValues(
        np.zeros((3, 2)), np.array([400.0, 12.0, -50.0]), 30.0, 30.0, 362.0
    )
    assert unknown_classes([values]) == [(1, 12.0, 30.0), (2, -50.0, 30.0)]


def test_many_clients_with_a_little_of_a_class_make_it_known() -> None:
    counts = np.full((100, 2), [20.0, 0.0])
    assert [
        label
        for label, *_ in unknown_classes(
            released(counts, 30.0, np.random.default_rng(0))
        )
    ] == [1]
    # one of them does not
    assert (
        unknown_classes(released(counts[:1], 30.0, np.random.default_rng(1)))[0][0] == 0
    )


def test_one_client_with_much_of_a_class_is_enough_beside_noisy_others() -> None:
    counts = np.zeros((400, 2))
    # ten deviations of its own noise, half of one of all noise together
    counts[7, 0] = 300.0
    found = unknown_classes(released(counts, 30.0, np.random.default_rng(2)))
    assert [(label, round(deviation)) for label, _, deviation in found] == [(1, 600)]


@pytest.mark.parametrize("clients", [1, 20, 500])
def test_a_class_without_records_is_hardly_ever_taken_for_known(clients: int) -> None:
    rng = np.random.default_rng(3)
    classes = 2000
    found = unknown_classes(released(np.zeros((clients, classes)), 5.0, rng))
    assert len(found) > 0.99 * classes  # each test is wrong once in 740
    assert DEVIATIONS == 3.0


def test_without_noise_the_empty_classes_are_unknown() -> None:
    values = ClassValues(np.zeros((2, 2)), np.array([1.0, 0.0]), 0.0, 0.0, 1.0)
    assert unknown_classes([values]) == [(1, 0.0, pytest.approx(0.0, abs=1e-8))]

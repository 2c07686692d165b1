"""Whom the promise protects: shares add up to one record's worth, and no person moves a summary further than that."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedaux.core.errors import UnknownNameError
from fedaux.data.records import Records
from fedaux.flower.node_settings import SettingsError
from fedaux.flower.user_model import Given
from fedaux.privacy.clipping import GRID, max_norm, quantize, unit_rows
from fedaux.privacy.release import Summary
from fedaux.privacy.units import Units
from fedaux.scoring.base import Scorer
from fedaux.scoring.class_embedding import ClassEmbeddingScorer
from fedaux.scoring.class_sums import class_sums
from fedaux.scoring.logistic import LogisticScorer, objective
from fedaux.scoring.mean_embedding import MeanEmbeddingScorer, mean_embedding

PERSONS = np.array([4, 4, 2, 4, 9, 2, 4])


def test_a_record_is_a_unit() -> None:
    units = Units.of(Records(np.zeros((3, 2)), np.zeros(3, np.int64)), "record", 1)
    assert units.count == 3
    assert [rows.tolist() for rows in units.rows] == [[0], [1], [2]]
    assert units.shares.tolist() == [1.0, 1.0, 1.0]


def test_a_person_is_a_unit_of_their_first_records() -> None:
    records = Records(np.zeros((7, 2)), person=PERSONS)
    units = Units.of(records, "person", 3)
    assert units.count == 3
    assert [rows.tolist() for rows in units.rows] == [[2, 5], [0, 1, 3], [4]]
    assert units.shares.tolist() == [1 / 3, 1 / 3, 0.5, 1 / 3, 1.0, 0.5, 0.0]
    view = Units.of(records.take(np.array([6, 4, 0])), "person", 1)  # positions are those of the view
    assert [rows.tolist() for rows in view.rows] == [[0], [1]]
    assert view.shares.tolist() == [1.0, 1.0, 0.0]


def test_rows_of_an_existing_app_come_with_names_of_persons() -> None:
    given = Given.of(np.zeros((4, 2)), np.zeros(4), list("baca"))
    assert [rows.tolist() for rows in Units.of(given, "person", 10).rows] == [[1, 3], [0], [2]]
    with pytest.raises(SettingsError, match=r"4 rows came with persons of shape \(3,\)"):
        Given.of(np.zeros((4, 2)), np.zeros(4), [1, 2, 3])


def test_no_records_are_no_units_and_unknown_words_are_refused() -> None:
    empty = Records(np.zeros((0, 2)), person=np.zeros(0, np.int64))
    assert Units.of(empty, "person", 2).count == Units.of(empty, "record", 2).count == 0
    with pytest.raises(UnknownNameError, match="unknown unit 'family'"):
        Units.of(empty, "family", 2)
    with pytest.raises(ValueError, match=r"name data\.person"):
        Units.of(Records(np.zeros((2, 2))), "person", 2)


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 3 * GRID))
def test_equal_shares_never_add_up_to_more_than_one_record(many: int) -> None:
    assert many * int(max_norm(np.array(1.0 / many))) <= GRID
    assert int(max_norm(np.array(1.0 / many))) == GRID // many


def test_a_share_shortens_and_one_changes_nothing() -> None:
    rows = unit_rows(np.random.default_rng(0).normal(size=(50, 6)))
    assert np.array_equal(quantize(rows, np.ones(50)), quantize(rows))
    shares = np.random.default_rng(1).uniform(0, 1, 50)
    assert (np.linalg.norm(quantize(rows, shares), axis=1) <= max_norm(shares)).all()
    assert np.allclose(quantize(rows, shares) / GRID, rows * shares[:, None], atol=1e-5)
    assert not quantize(rows, np.zeros(50)).any()


def person(rng: np.random.Generator, cap: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of somebody: one direction or many, one class or many, far away or not."""
    many = int(rng.integers(1, cap + 3))
    rows = rng.normal(size=(many, 4)) if rng.random() < 0.5 else np.tile(rng.normal(size=4), (many, 1))
    labels = rng.integers(-1, 4, many) if rng.random() < 0.5 else np.full(many, rng.integers(-1, 4))
    return rows * 10 ** rng.uniform(-3, 3), labels


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "scorer", [MeanEmbeddingScorer(3), ClassEmbeddingScorer(3, 3), LogisticScorer(0.05)], ids=lambda one: one.name
)
def test_no_person_moves_a_summary_further_than_one_record_could(scorer: Scorer, adjacency: str) -> None:
    rng, cap, far = np.random.default_rng(3), 5, 0.0
    public = scorer.publish(rng.normal(size=(40, 4)))

    def summary(people: list[tuple[np.ndarray, np.ndarray]]) -> Summary:
        rows, labels = (np.concatenate([one[part] for one in people]) for part in (0, 1))
        whose = np.repeat(np.arange(len(people)), [len(one[0]) for one in people])
        records = Records(rows, labels, person=whose)
        shares = Units.of(records, "person", cap).shares
        return scorer.summarise(public, rows, labels, adjacency, 4, shares)

    for trial in range(60 if scorer.name == "logistic" else 600):
        crowd, one, other = [person(rng, cap) for _ in range(3)], person(rng, cap), person(rng, cap)
        if trial % 3 == 0:
            other = (2 * public["mean"] - one[0], one[1])  # as far away as can be, in the same classes
        first, second = summary([*crowd, one]), summary([*crowd, *([other] if adjacency == "replace-one" else [])])
        distance = float(np.linalg.norm((first.values - second.values).astype(np.float64)))
        assert distance <= first.sensitivity
        far = max(far, distance / first.sensitivity)
    assert far > (0.2 if scorer.name == "logistic" else 0.9)  # the bound is not idle


def test_summaries_are_means_over_persons() -> None:
    rng = np.random.default_rng(0)
    rows, labels = unit_rows(rng.normal(size=(7, 3))), rng.integers(0, 3, 7)
    units = Units.of(Records(rows, labels, person=PERSONS), "person", 3)
    found = class_sums(rows, labels, 3, "replace-one", 3, units.shares).values.reshape(3, 4) / GRID
    for label in range(3):
        mine = (labels == label) * units.shares
        assert np.allclose(found[label], [*(mine @ rows), mine.sum()], atol=1e-5)
    mean = mean_embedding(rows, "replace-one", 3, units.shares)
    naive = np.mean([rows[own].mean(axis=0) for own in units.rows], axis=0)
    assert np.allclose(mean.values * mean.step, naive, atol=1e-5)


def test_a_term_of_the_logistic_objective_counts_for_its_share() -> None:
    rng = np.random.default_rng(0)
    own, negatives, w = rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=3)
    twice = objective(w, own[[0, 0, 1]], np.array([0.5, 0.5, 1.0]), negatives, 0.1, 6)
    once = objective(w, own, np.ones(2), negatives, 0.1, 6)
    assert twice[0] == pytest.approx(once[0])
    assert np.allclose(twice[1], once[1])

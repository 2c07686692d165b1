"""Looks: what is counted, and how much one record can change it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.client.looks import count_in_bins
from fedaux.core.failures import OrderError
from fedaux.messages import Tallies, Tally
from fedaux.messages.tallies import MAX_TALLIES, MEANINGS_OF_TALLIES, STEPS
from fedaux.server.site_test import tallies_of_test

ALL = Tallies(
    {
        "classes": Tally("classes", 0.25),
        "answers": Tally("answers"),
        "hits": Tally("hits", 0.7),
        "scores": Tally("scores", 0.85, (-1.0, 0.0, 2.5)),
    }
)
RECORD = st.tuples(st.integers(-1, 2), st.floats(-5, 5), st.floats(-5, 5))


def naive(
    rows: list[tuple[int, float, float]], shares: list[float]
) -> dict[str, dict[tuple[int, ...], int]]:
    """Count record by record, in the words of the declaration."""
    counts: dict[str, dict[tuple[int, ...], int]] = {name: {} for name in ALL.by_name}
    for (label, first, second), share in zip(rows, shares, strict=True):
        if label not in (0, 1):
            none = math.floor(share * ALL.by_name["classes"].steps)
            counts["classes"][(2,)] = counts["classes"].get((2,), 0) + none
            continue
        predicted = 1 if np.float32(second) > np.float32(first) else 0
        difference = float(np.float32(second)) - float(np.float32(first))
        bin_ = sum(difference >= edge for edge in (-1.0, 0.0, 2.5))
        right = int(predicted == label)
        places = {
            "classes": (label,),
            "answers": (right,),
            "hits": (label, right),
            "scores": (label, bin_),
        }
        for name, place in places.items():
            added = math.floor(share * ALL.by_name[name].steps)
            counts[name][place] = counts[name].get(place, 0) + added
    return counts


def counted(
    rows: list[tuple[int, float, float]], shares: list[float]
) -> dict[str, np.ndarray]:
    labels = np.array([row[0] for row in rows], np.int64)
    logits = np.array([row[1:] for row in rows], np.float32).reshape(-1, 2)
    values = count_in_bins(ALL, 2, labels, logits, np.array(shares), {})
    return {name: values[place] for name, place in ALL.slices(2).items()}


@given(st.lists(st.tuples(RECORD, st.sampled_from([1.0, 0.5, 1 / 3])), max_size=12))
def test_counts_are_those_of_the_declaration(
    drawn: list[tuple[tuple[int, float, float], float]],
) -> None:
    rows = [row for row, _ in drawn]
    shares = [share for _, share in drawn]
    widths = {"classes": 1, "answers": 1, "hits": 2, "scores": 4}
    expected = naive(rows, shares)
    for name, values in counted(rows, shares).items():
        assert int(values.sum()) == sum(expected[name].values())
        for place, value in expected[name].items():
            flat = place[0]
            if len(place) == 2:
                flat = place[0] * widths[name] + place[1]
            assert values[flat] == value


@given(st.lists(RECORD, min_size=1, max_size=8), RECORD)
def test_no_exchange_moves_the_counts_farther_than_the_sensitivity(
    rows: list[tuple[int, float, float]], other: tuple[int, float, float]
) -> None:
    ones = [1.0] * len(rows)
    before = np.concatenate(list(counted(rows, ones).values()))
    after = np.concatenate(list(counted([other, *rows[1:]], ones).values()))
    without = np.concatenate(list(counted(rows[1:], ones[1:]).values()))
    assert np.linalg.norm(before - after) <= ALL.sensitivity("replace-one")
    assert np.linalg.norm(before - without) <= ALL.sensitivity("add-remove")


def test_some_exchange_reaches_the_sensitivity() -> None:
    one = np.concatenate(list(counted([(0, 1.0, -1.0)], [1.0]).values()))
    other = np.concatenate(list(counted([(1, 3.0, 1.0)], [1.0]).values()))
    reached = np.linalg.norm(one - other)
    assert reached == pytest.approx(ALL.sensitivity("replace-one"), rel=1e-12)


def test_what_is_not_finite_adds_nothing_but_its_class() -> None:
    rows = [(0, math.nan, 1.0), (1, 0.0, math.inf)]
    values = counted(rows, [1.0, 1.0])
    assert values.pop("classes").tolist() == [STEPS // 4, STEPS // 4, 0]
    assert not any(of_model.any() for of_model in values.values())


def test_tallies_survive_json() -> None:
    assert Tallies.from_json(ALL.to_json()) == ALL
    assert ALL.needs_model
    age = Tally("column", edges=(20.0, 90.0), column="age")
    sex = Tally("column", column="sex", values=("f", "m"))
    of_data = Tallies({"classes": Tally("classes"), "age": age, "sex": sex})
    assert Tallies.from_json(of_data.to_json()) == of_data
    of_data.check(2)
    assert not of_data.needs_model
    assert of_data.columns == [age, sex]
    with pytest.raises(OrderError, match="a column is counted by once"):
        Tallies({"age": age, "again": age}).check(2)


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_the_test_of_a_run_is_answered(classes: int) -> None:
    tallies = tallies_of_test(classes)
    tallies.check(classes)
    assert ("scores" in tallies.by_name) == (classes == 2)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kind": "everything"}, "'everything' is not known here"),
        ({"weight": 2.0}, "a weight lies between"),
        ({"weight": 0.01}, "a weight lies between"),
        ({"kind": "scores", "edges": [1.0, 0.0]}, "edges are finite and increase"),
        ({"kind": "scores", "edges": [0.0, 0.0]}, "edges are finite and increase"),
        ({"kind": "scores", "edges": []}, "scores and columns have edges"),
        ({"edges": [0.0]}, "scores and columns have edges"),
        ({"edges": [math.inf]}, "edges are finite"),
        ({"column": "age"}, "only a tally by a column"),
        ({"kind": "column", "edges": [0.0]}, "a column has a name"),
        ({"kind": "column", "column": "age"}, "either edges or values"),
        (
            {"kind": "column", "column": "age", "edges": [0.0], "values": ["a"]},
            "either edges or values",
        ),
        ({"kind": "column", "column": "age", "values": ["a", "a"]}, "differ"),
    ],
)
def test_other_bins_are_refused(row: dict[str, object], message: str) -> None:
    text = json.dumps({"a": {"kind": "answers", "weight": 1.0, "edges": [], **row}})
    with pytest.raises(OrderError, match=message):
        Tallies.from_json(text).check(2)


def test_scores_are_of_two_classes_and_tallies_are_few() -> None:
    with pytest.raises(OrderError, match="two classes"):
        ALL.check(3)
    many = Tallies({str(n): Tally("answers") for n in range(MAX_TALLIES + 1)})
    with pytest.raises(OrderError, match="1 to 64 tallies"):
        many.check(2)
    with pytest.raises(OrderError, match="at most 65536 bins"):
        Tallies({"hits": Tally("hits")}).check(2**16)
    with pytest.raises(OrderError, match="not of this version"):
        Tallies.from_json('{"a": 1}')


def test_a_count_has_more_steps_than_noise_needs() -> None:
    kinds = {tally.kind for tally in ALL.by_name.values()}
    assert set(MEANINGS_OF_TALLIES) == kinds | {"column"}
    assert Tally("answers").steps == STEPS

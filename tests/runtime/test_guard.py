"""Nothing that a client could send wrongly reaches a model."""

from typing import Any

import numpy as np
import pytest
from samples import evaluate_order, prepare_order, release, score, train_order, update, weights

from fedaux.runtime.guard import MAX_RECORDS, NORM_FACTOR, Refused, check


@pytest.mark.parametrize(
    ("order", "reply"),
    [
        (prepare_order(), release()),
        (prepare_order(), release(records=1)),
        (prepare_order(), release(records=MAX_RECORDS)),
        # what a release costs is the client's own decision: the order says nothing about it
        (prepare_order(), release(epsilon=3.0, delta=1e-6, adjacency="add-remove", certificate="analytic")),
        (prepare_order(), release(unsafe=True)),
        (prepare_order(size=0), release(arrays={"values": np.zeros(0, np.int64)})),
        (train_order(), update()),
        (train_order(), update(weights=weights(100.0))),
        (train_order(weights=weights(0.0)), update(weights=weights(100.0))),  # sent zeros: something may come back
        (evaluate_order(), score()),
    ],
)
def test_honest_replies_pass(order: Any, reply: Any) -> None:
    check(order, reply)


def spoiled(value: float) -> dict[str, Any]:
    arrays = weights()
    arrays["float32"][3] = value
    return arrays


UPDATES = {
    "another client": ({"client": "b"}, "answers for 'b'"),
    "another round": ({"round": 1}, "answers round 1, not 2"),
    "no records": ({"records": 0}, "claims 0 records"),
    "fewer than none": ({"records": -5}, "claims -5 records"),
    "too many": ({"records": MAX_RECORDS + 1}, f"claims {MAX_RECORDS + 1} records"),
    "loss nan": ({"loss": float("nan")}, "its training diverged: the loss is nan"),
    "loss inf": ({"loss": float("inf")}, "its training diverged: the loss is inf"),
    "no array": ({"weights": {}}, "sends arrays [], expected ['float32', 'int64']"),
    "missing array": ({"weights": {"float32": weights()["float32"]}}, "sends arrays ['float32'], expected"),
    "extra array": ({"weights": {**weights(), "x": np.ones(1)}}, "sends arrays ['float32', 'int64', 'x']"),
    "shape": (
        {"weights": {**weights(), "float32": np.ones(5, np.float32)}},
        "float32 is float32(5,), expected float32(6,)",
    ),
    "rank": ({"weights": {**weights(), "float32": np.ones((6, 1), np.float32)}}, "float32 is float32(6, 1)"),
    "dtype": ({"weights": {**weights(), "float32": np.ones(6)}}, "float32 is float64(6,), expected float32(6,)"),
    "integers": ({"weights": {**weights(), "int64": np.ones(1, np.int32)}}, "int64 is int32(1,), expected int64(1,)"),
    "nan": ({"weights": spoiled(np.nan)}, "float32 has norm nan"),
    "inf": ({"weights": spoiled(-np.inf)}, "float32 has norm inf"),
    "huge": ({"weights": spoiled(1e6)}, "float32 has norm 1e+06; more than 4.9e+04 is not believed"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_refused(name: str) -> None:
    changes, fragment = UPDATES[name]
    with pytest.raises(Refused) as caught:
        check(train_order(), update(**{"client": "a", **changes}))
    assert fragment in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_the_largest_floats_are_refused_quietly() -> None:
    with pytest.raises(Refused, match="float32 has norm"):
        check(train_order(), update(weights=spoiled(1e30)))


def test_the_limit_grows_with_what_was_sent() -> None:
    limit = NORM_FACTOR * 2 * np.sqrt(6)  # norm and size of six ones
    check(train_order(), update(weights=weights(float(0.99 * limit / np.sqrt(6)))))
    with pytest.raises(Refused, match="is not believed"):
        check(train_order(), update(weights=weights(float(1.01 * limit / np.sqrt(6)))))
    check(train_order(weights=weights(10.0)), update(weights=weights(float(1.01 * limit / np.sqrt(6)))))


VALUES = np.array([1, 2], np.int64)
RELEASES = {
    "another client": ({"client": "b"}, "answers for 'b'"),
    "no records": ({"records": 0}, "claims 0 records"),
    "too many": ({"records": MAX_RECORDS + 1}, f"claims {MAX_RECORDS + 1} records"),
    "scorer": ({"scorer": "logistic"}, "made by the scorer 'logistic'"),
    "epsilon nan": ({"epsilon": float("nan")}, "not a positive number"),
    "epsilon zero": ({"epsilon": 0.0}, "not a positive number"),
    "epsilon negative": ({"epsilon": -0.1}, "not a positive number"),
    "epsilon inf": ({"epsilon": float("inf")}, "not a positive number"),
    "no sensitivity": ({"sensitivity": 0.0}, "not a positive number"),
    "sensitivity nan": ({"sensitivity": float("nan")}, "not a positive number"),
    "too short": ({"arrays": {"values": VALUES[:1]}}, "not one vector of 2 integers"),
    "too long": ({"arrays": {"values": np.arange(3)}}, "not one vector of 2 integers"),
    "empty": ({"arrays": {"values": VALUES[:0]}}, "not one vector of 2 integers"),
    "a single number": ({"arrays": {"values": np.array(3)}}, "not one vector of 2 integers"),
    "narrow integers": ({"arrays": {"values": VALUES.astype(np.int32)}}, "not one vector of 2 integers"),
    "no values": ({"arrays": {}}, "not one vector of 2 integers"),
    "more arrays": ({"arrays": {"values": VALUES, "raw": VALUES}}, "not one vector of 2 integers"),
    "another name": ({"arrays": {"raw": VALUES}}, "not one vector of 2 integers"),
    "floats": ({"arrays": {"values": VALUES.astype(float)}}, "not one vector of 2 integers"),
    "matrix": ({"arrays": {"values": VALUES[None]}}, "not one vector of 2 integers"),
    "no noise": ({"scale": 0.0}, "not a positive number"),
    "negative noise": ({"scale": -1.0}, "not a positive number"),
    "endless noise": ({"scale": float("inf")}, "not a positive number"),
    "nan noise": ({"scale": float("nan")}, "not a positive number"),
    "step zero": ({"step": 0.0}, "not a positive number"),
    "step inf": ({"step": float("inf")}, "not a positive number"),
    "step nan": ({"step": float("nan")}, "not a positive number"),
}


@pytest.mark.parametrize("name", RELEASES)
def test_releases_refused(name: str) -> None:
    changes, fragment = RELEASES[name]
    with pytest.raises(Refused) as caught:
        check(prepare_order(), release(**{"client": "a", **changes}))
    assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [({"client": "b"}, "answers for"), ({"round": 3}, "answers round 3"), ({"records": 0}, "0 records")],
)
def test_scores_refused(changes: dict[str, Any], fragment: str) -> None:
    with pytest.raises(Refused, match=fragment):
        check(evaluate_order(), score(**{"client": "a", **changes}))


@pytest.mark.parametrize(
    ("order", "reply"),
    [
        (evaluate_order(), score(correct=8)),
        (evaluate_order(), score(correct=-1)),
        (evaluate_order(), score(loss=float("nan"))),
        (evaluate_order(), score(records=MAX_RECORDS + 1)),
        (prepare_order(), update()),
        (train_order(), score()),
        (evaluate_order(), update()),
    ],
    ids=[
        "more right than asked",
        "fewer than none",
        "score loss",
        "more records than anybody has",
        "update for a release",
        "score for training",
        "update for a score",
    ],
)
def test_also_refused(order: Any, reply: Any) -> None:
    with pytest.raises(Refused):
        check(order, reply)


@pytest.mark.parametrize(
    "changes",
    [{"adjacency": "x"}, {"certificate": "trust me"}, {"delta": float("nan")}, {"delta": 0.0}, {"delta": 1.0}],
    ids=str,
)
def test_a_budget_that_means_nothing_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        check(prepare_order(), release(**changes))

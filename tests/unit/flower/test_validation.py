"""Nothing that a client could send wrongly reaches a model."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaux.client.summaries import summarise
from fedaux.config.sections import PrivacyConfig
from fedaux.flower.validation import (
    MAX_RECORDS,
    MAX_STEPS,
    NORM_FACTOR,
    InvalidReplyError,
    max_release_norm,
    validate_reply,
)
from fedaux.messages import Release, Teaching
from fedaux.methods.contribution import ENSEMBLE_BITS, Ensemble
from fedaux.privacy.mechanism import multiplier
from fedaux.privacy.mechanism import release as make_release
from fedaux.scoring.base import Scorer, bound_function
from fedaux.scoring.class_moments import ClassMomentsScorer
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from helpers.samples import (
    ACCOUNT,
    masked,
    prepare_order,
    release,
    sum_order,
    sums,
    sums_order,
    train_order,
    update,
    weights,
)


def budget(epsilon: float, delta: float, calibration: str) -> dict[str, Any]:
    """A budget, and the noise that it asks for at the sample's sensitivity."""
    scale = multiplier(epsilon, delta, calibration, 2, 2.0**21) * 2.0**21
    return {
        "epsilon": epsilon,
        "delta": delta,
        "calibration": calibration,
        "scale": scale,
    }


def counted(steps: int) -> dict[str, Any]:
    return {**weights(), "counters": np.array([steps], np.int64)}


@pytest.mark.parametrize(
    ("order", "reply"),
    [
        (prepare_order(), release()),
        (prepare_order(), release(records=1)),
        (prepare_order(), release(records=MAX_RECORDS)),
        # what a release costs is the client's own decision: the order says nothing
        # about it
        (
            prepare_order(),
            release(adjacency="add-remove", **budget(3.0, 1e-6, "analytic")),
        ),
        (prepare_order(), release(**budget(0.5, 1e-5, "opendp"))),
        (prepare_order(), release(unsafe=True)),
        (prepare_order(size=0), release(arrays={"values": np.zeros(0, np.int64)})),
        (sums_order(), sums()),
        (sums_order(), sums(records=2)),
        (train_order(), update()),
        (train_order(), update(weights=weights(100.0))),
        # sent zeros: something may come back
        (train_order(weights=weights(0.0)), update(weights=weights(100.0))),
        (train_order(), update(weights=counted(3 + MAX_STEPS))),
    ],
)
def test_honest_replies_pass(order: Any, reply: Any) -> None:
    validate_reply(order, reply)


def steps(*values: Any) -> Any:
    return np.array(values, np.int64) << 26


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (sums("b"), "answers for"),
        (sums(records=1), "counts"),
        (sums(counts=steps(-1, 3)), "counts"),
        (sums(counts=steps(0, 0)), "counts"),
        (sums(counts=steps(2, 0) + 1), "counts"),
        (
            sums(counts=np.array([2.0, 0.0])),
            r"'counts': an array of int64, but it is float64\(2,\)",
        ),
        (
            sums(moments=steps(1, 0)),
            r"'moments': of shape \(3,\), but it is int64\(2,\)",
        ),
        (sums(more=steps(1)), "the arrays class_sums, counts, moments, not"),
        (sums(class_sums=steps([1, 2], [1, 0])), "without records"),
        (sums(class_sums=steps([2, 2], [0, 0])), "second moments"),
        (sums(moments=steps(-1, 0, 4)), "second moments"),
        (sums(moments=steps(1, 0, 10**6)), "squared norm"),
        (sums(moments=steps(1, 0, 2**33)), "out of range"),
    ],
)
def test_sums_that_no_features_have_are_refused(reply: Any, reason: str) -> None:
    with pytest.raises(InvalidReplyError, match=reason):
        validate_reply(sums_order(), reply)


def test_class_sums_alone_are_held_against_their_counts() -> None:
    def arrays(value: int) -> Any:
        reply = sums(class_sums=steps([value, 2], [0, 0]))
        return replace(
            reply,
            arrays={name: reply.arrays[name] for name in ("class_sums", "counts")},
        )

    validate_reply(sums_order(sends="class-sums"), arrays(1))
    with pytest.raises(InvalidReplyError, match="squared norm"):
        validate_reply(sums_order(sends="class-sums"), arrays(10**4))


def spoiled(value: float) -> dict[str, Any]:
    arrays = weights()
    arrays["parameters"][3] = value
    return arrays


FLAT = {"parameters": np.ones(6, np.float32)}
UPDATES = {
    "another client": ({"client": "b"}, "answers for 'b'"),
    "another round": ({"round": 1}, "its round should be 2, but it is 1"),
    "no records": ({"records": 0}, "claims 0 records"),
    "too many": ({"records": MAX_RECORDS + 1}, f"claims {MAX_RECORDS + 1} records"),
    "loss nan": ({"loss": float("nan")}, "its training diverged: the loss is nan"),
    "endless loss": (
        {"loss": float("-inf")},
        "its training diverged: the loss is -inf",
    ),
    "no private noise": (
        {"noise": float("nan")},
        "its noise should be a number from 0 to 1.15292e+18, but it is nan",
    ),
    "negative noise": ({"noise": -1e-9}, "its noise should be a number from 0 to"),
    "endless noise": ({"noise": 2.0**61}, "its noise should be a number from 0 to"),
    "no rate": (
        {"rate": 0.0},
        "its rate should be a number from 2.22507e-308 to 1, but it is 0.0",
    ),
    "more than all": (
        {"rate": 1.0 + 1e-9},
        "its rate should be a number from 2.22507e-308 to 1",
    ),
    "endless training": (
        {"steps": MAX_STEPS + 1},
        "its steps should be an integer from 0 to 1000000, but it is 1000001",
    ),
    "no steps": (
        {"steps": -1},
        "its steps should be an integer from 0 to 1000000, but it is -1",
    ),
    "no time": (
        {"seconds": float("nan")},
        "its seconds should be a number from 0 to 1e+308, but it is nan",
    ),
    "less than no time": (
        {"seconds": -1e-9},
        "its seconds should be a number from 0 to 1e+308",
    ),
    "endless time": (
        {"seconds": float("inf")},
        "its seconds should be a number from 0 to 1e+308, but it is inf",
    ),
    "counter": (
        {"weights": counted(4 + MAX_STEPS)},
        "counters counts more than 1000000 steps in one round",
    ),
    "largest counter": ({"weights": counted(2**63 - 1)}, "counters counts more than"),
    "no array": ({"weights": {}}, "its weights should be arrays parameters, counters"),
    "one array less": (
        {"weights": FLAT},
        "its weights should be the arrays parameters, counters, not 'parameters'",
    ),
    "extra array": (
        {"weights": {**weights(), "x": np.ones(1)}},
        (
            "its weights should be the arrays parameters, counters, not 'parameters', "
            "'counters', 'x'"
        ),
    ),
    "shape": (
        {"weights": {**weights(), "parameters": np.ones(5, np.float32)}},
        "its weights should be 'parameters': of shape (6,), but it is float32(5,)",
    ),
    "dtype": (
        {"weights": {**weights(), "parameters": np.ones(6)}},
        "its weights should be 'parameters': an array of float32, but it is float64(6,)",
    ),
    "integers": (
        {"weights": {**weights(), "counters": np.ones(1, np.int32)}},
        "its weights should be 'counters': an array of int64, but it is int32(1,)",
    ),
    "nan": (
        {"weights": spoiled(np.nan)},
        "its weights should be 'parameters': finite numbers",
    ),
    "inf": (
        {"weights": spoiled(-np.inf)},
        "its weights should be 'parameters': finite numbers",
    ),
    "huge": (
        {"weights": spoiled(1e6)},
        "parameters has norm 1e+06, but at most 4.9e+04 is allowed",
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_refused(name: str) -> None:
    changes, fragment = UPDATES[name]
    with pytest.raises(InvalidReplyError) as caught:
        validate_reply(train_order(), update(**{"client": "a", **changes}))
    assert fragment in str(caught.value)


SCAFFOLD = train_order(
    method="scaffold", weights=FLAT, broadcast={"c": np.zeros(6, np.float32)}
)
FEDNOVA = train_order(
    method="fednova", weights=FLAT, optimizer="sgd", momentum=0.9, batch_size=1
)


def test_what_a_method_sends_beside_the_model_passes() -> None:
    validate_reply(
        SCAFFOLD, update(weights=FLAT, extra={"c": np.full(6, 3, np.float32)})
    )
    validate_reply(
        FEDNOVA, update(weights=FLAT, extra={"a": np.array([25.0], np.float32)})
    )
    many = update(
        weights=FLAT, records=MAX_RECORDS, extra={"a": np.array([1e9], np.float32)}
    )
    validate_reply(FEDNOVA, many)  # a hundred million steps are counted at once


EXTRAS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unasked": (
        train_order(),
        {"x": np.ones(1, np.float32)},
        "sends arrays ['extra.x'], expected []",
    ),
    "missing": (
        SCAFFOLD,
        {},
        "sends arrays [], expected ['extra.c']",
    ),
    "shape": (
        SCAFFOLD,
        {"c": np.ones(5, np.float32)},
        "extra.c is float32(5,), expected float32(6,)",
    ),
    "dtype": (SCAFFOLD, {"c": np.ones(6)}, "extra.c is float64(6,)"),
    "integers": (
        SCAFFOLD,
        {"c": np.ones(6, np.int64)},
        (
            "its extra should be 'c': an array of float32 or float64 or float16, but it is "
            "int64(6,)"
        ),
    ),
    "many": (
        SCAFFOLD,
        dict.fromkeys("cdef", np.ones(1, np.float32)),
        "its extra should be at most 3 arrays",
    ),
    "large": (
        SCAFFOLD,
        {"c": np.ones(19, np.float32)},
        "its extra should be at most 72 bytes",
    ),
    "nan": (
        SCAFFOLD,
        {"c": np.full(6, np.nan, np.float32)},
        "its extra should be 'c': finite numbers",
    ),
    "huge": (
        SCAFFOLD,
        {"c": np.full(6, 1e5, np.float32)},
        "extra.c has norm 2.45e+05, but at most 2.45e+04",
    ),
    "endless": (
        FEDNOVA,
        {"a": np.array([1e7], np.float32)},
        "extra.a has norm 1e+07, but at most",
    ),
}


@pytest.mark.parametrize("name", EXTRAS)
def test_what_a_method_sends_beside_the_model_is_refused(name: str) -> None:
    order, extra, fragment = EXTRAS[name]
    with pytest.raises(InvalidReplyError) as caught:
        validate_reply(order, update(weights=order.weights, extra=extra))
    assert fragment in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_models_in_half_precision_are_measured_as_well() -> None:
    # of norm 316: its square is no float16
    sent, spoiled = np.ones(10**5, np.float16), np.ones(10**5, np.float16)
    spoiled[7] = np.inf
    validate_reply(train_order(weights={"x": sent}), update(weights={"x": sent}))
    with pytest.raises(InvalidReplyError, match="x has norm inf"):
        validate_reply(train_order(weights={"x": sent}), update(weights={"x": spoiled}))


def test_the_limit_grows_with_what_was_sent() -> None:
    limit = NORM_FACTOR * 2 * np.sqrt(6)  # norm and size of six ones
    validate_reply(
        train_order(), update(weights=weights(float(0.99 * limit / np.sqrt(6))))
    )
    with pytest.raises(InvalidReplyError, match="is allowed"):
        validate_reply(
            train_order(), update(weights=weights(float(1.01 * limit / np.sqrt(6))))
        )
    validate_reply(
        train_order(weights=weights(10.0)),
        update(weights=weights(float(1.01 * limit / np.sqrt(6)))),
    )


VALUES = np.array([1, 2], np.int64)
POSITIVE = "should be a number above 0 and below 1.15292e+18, but it is"
INTEGERS = "its arrays should be 'values': an array of int64, but it is"
VECTOR = "its arrays should be 'values': of shape (2,), but it is"
RELEASES = {
    "scorer": ({"scorer": "logistic"}, "made by the scorer 'logistic'"),
    "epsilon nan": ({"epsilon": float("nan")}, f"its epsilon {POSITIVE} nan"),
    "epsilon zero": ({"epsilon": 0.0}, f"its epsilon {POSITIVE} 0.0"),
    "epsilon negative": ({"epsilon": -0.1}, f"its epsilon {POSITIVE} -0.1"),
    "epsilon endless": (
        {"epsilon": 2.0**60},
        f"its epsilon {POSITIVE} 1.152921504606847e+18",
    ),
    "no sensitivity": ({"sensitivity": 0.0}, f"its sensitivity {POSITIVE} 0.0"),
    "endless sensitivity": (
        {"sensitivity": 2.0**60},
        f"its sensitivity {POSITIVE} 1.152921504606847e+18",
    ),
    "too short": ({"arrays": {"values": VALUES[:1]}}, f"{VECTOR} int64(1,)"),
    "a single number": ({"arrays": {"values": np.array(3)}}, f"{VECTOR} int64()"),
    "narrow integers": (
        {"arrays": {"values": VALUES.astype(np.int32)}},
        f"{INTEGERS} int32(2,)",
    ),
    "no values": ({"arrays": {}}, "its arrays should be arrays values"),
    "more arrays": (
        {"arrays": {"values": VALUES, "raw": VALUES}},
        "its arrays should be the arrays values, not 'values', 'raw'",
    ),
    "floats": ({"arrays": {"values": VALUES.astype(float)}}, f"{INTEGERS} float64(2,)"),
    "matrix": ({"arrays": {"values": VALUES[None]}}, f"{VECTOR} int64(1, 2)"),
    "no noise": ({"scale": 0.0}, f"its scale {POSITIVE} 0.0"),
    "endless noise": ({"scale": float("inf")}, f"its scale {POSITIVE} inf"),
    "step zero": ({"step": 0.0}, f"its step {POSITIVE} 0.0"),
    "step nan": ({"step": float("nan")}, f"its step {POSITIVE} nan"),
}


@pytest.mark.parametrize("name", RELEASES)
def test_releases_refused(name: str) -> None:
    changes, fragment = RELEASES[name]
    with pytest.raises(InvalidReplyError) as caught:
        validate_reply(prepare_order(), release(**{"client": "a", **changes}))
    assert fragment in str(caught.value)


GIVEN = {**json.loads(ACCOUNT), "signature": 64 * "f"}
NO_OBJECT = "its account should be a JSON object of at most 100000 characters"
NO_ACCOUNT = r"its account should be a JSON object with epsilon \(float\), delta \(float\), adjacency \(str\), unit"
OUT_OF_RANGE = "the account that it gives of its privacy is out of range"
ACCOUNTS: list[tuple[Any, str]] = [(text, NO_OBJECT) for text in ("", "{", "[]", "1")]
ACCOUNTS += [({}, NO_ACCOUNT), ({**GIVEN, "more": 1}, NO_ACCOUNT)]
ACCOUNTS += [
    ({name: value for name, value in GIVEN.items() if name != missing}, NO_ACCOUNT)
    for missing in GIVEN
]
ACCOUNTS += [
    ({**GIVEN, "epsilon": "much"}, NO_ACCOUNT),
    ({**GIVEN, "epsilon": 1}, NO_ACCOUNT),
    ({**GIVEN, "entries": 1.0}, NO_ACCOUNT),
    ({**GIVEN, "entries": True}, NO_ACCOUNT),
    (
        {**GIVEN, "adjacency": "\x1b[2K"},
        "its account should be a JSON object of printable text",
    ),
    ({**GIVEN, "epsilon": -0.1}, OUT_OF_RANGE),
    ({**GIVEN, "epsilon": float("nan")}, OUT_OF_RANGE),
    ({**GIVEN, "delta": 0.0}, OUT_OF_RANGE),
    ({**GIVEN, "delta": 1.0}, OUT_OF_RANGE),
    ({**GIVEN, "delta": float("nan")}, OUT_OF_RANGE),
    ({**GIVEN, "adjacency": "x"}, OUT_OF_RANGE),
    ({**GIVEN, "unit": "family"}, OUT_OF_RANGE),
    ({**GIVEN, "entries": -1}, OUT_OF_RANGE),
    ({**GIVEN, "entries": 2**40}, OUT_OF_RANGE),
    ({**GIVEN, "signature": 65 * "f"}, OUT_OF_RANGE),
]
WITH_ACCOUNTS = [
    (prepare_order(), release),
    (train_order(), update),
    (sums_order(), lambda account: replace(sums(), account=account)),
    (sum_order(step="masked"), masked),
]


def in_words(account: Any) -> str:
    return account if isinstance(account, str) else json.dumps(account)


@pytest.mark.parametrize(("told", "reason"), ACCOUNTS, ids=in_words)
@pytest.mark.parametrize(
    ("order", "reply"), WITH_ACCOUNTS, ids=lambda value: type(value).__name__
)
def test_an_account_that_means_nothing_is_refused(
    order: Any, reply: Any, told: Any, reason: str
) -> None:
    with pytest.raises(InvalidReplyError, match=reason):
        validate_reply(order, reply(account=in_words(told)))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, float("inf")])
@pytest.mark.parametrize(
    ("order", "reply"), WITH_ACCOUNTS, ids=lambda value: type(value).__name__
)
def test_an_honest_account_passes(order: Any, reply: Any, epsilon: float) -> None:
    validate_reply(order, reply(account=in_words({**GIVEN, "epsilon": epsilon})))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"adjacency": "x"},
            "states its budget for the adjacency 'x', which is not known",
        ),
        (
            {"calibration": "trust me"},
            "states its budget for the calibration 'trust me', which is not known",
        ),
        (
            {"delta": float("nan")},
            "its delta should be a number above 0 and below 1, but it is nan",
        ),
        (
            {"delta": 0.0},
            "its delta should be a number above 0 and below 1, but it is 0.0",
        ),
        (
            {"delta": 1.0},
            "its delta should be a number above 0 and below 1, but it is 1.0",
        ),
    ],
    ids=str,
)
def test_a_budget_that_means_nothing_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidReplyError, match=reason):
        validate_reply(prepare_order(), release(**changes))


@pytest.mark.parametrize(
    ("order", "reply"), [(prepare_order(), release()), (train_order(), update())]
)
def test_nobody_has_more_records_than_the_federation_allows(
    order: Any, reply: Any
) -> None:
    validate_reply(order, reply, max_records=7)
    with pytest.raises(
        InvalidReplyError, match="claims 7 records, but only 1 to 6 are allowed"
    ):
        validate_reply(order, reply, max_records=6)


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": release().scale * (1 - 1e-5)},
        {"scale": release().scale * (1 + 1e-5)},
        {"scale": 1.0},
        {"epsilon": 0.11},
        {"delta": 1.1e-5},
        {"sensitivity": 2.0**21 + 100},
        {"calibration": "opendp"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_noise_other_than_the_budget_asks_for_is_refused(
    changes: dict[str, Any],
) -> None:
    """Else a client could claim a precision, or a privacy, that its release does not
    have.
    """
    with pytest.raises(
        InvalidReplyError, match=r"states noise of scale .*, but its budget asks for"
    ):
        validate_reply(prepare_order(), release(**changes))


@pytest.mark.parametrize("calibration", ["analytic", "opendp"])
@pytest.mark.parametrize("epsilon", [1e15, 5e-324])
def test_budgets_beyond_arithmetic_are_refused(
    epsilon: float, calibration: str
) -> None:
    with pytest.raises(
        InvalidReplyError,
        match=r"its budget asks for|no noise gives the budget it states",
    ):
        validate_reply(
            prepare_order(),
            release(epsilon=epsilon, delta=1e-300, calibration=calibration),
        )


SCORERS = [
    ClassEmbeddingScorer(3, 4),
    ClassMomentsScorer(3, 4),
    LogisticScorer(0.05),
]
RNG = np.random.default_rng(0)
NEGATIVES = RNG.normal(size=(60, 6))
# all alike and far out: the max_release_norm summary there is
ONE_CORNER = np.tile(100 * NEGATIVES[:1], (50, 1))


def made(
    scorer: Scorer, rows: np.ndarray, adjacency: str = "replace-one", seed: int = 0
) -> tuple[Any, Release]:
    """An order, and the honest answer of a client with these rows, all of one class."""
    public = scorer.publish(NEGATIVES)
    order = prepare_order(
        scorer=scorer.name, size=scorer.size(public), public=public, classes=3
    )
    summary = summarise(
        scorer,
        public,
        rows,
        np.ones(len(rows), np.int64),
        adjacency,
        len(rows),
        np.ones(len(rows)),
    )
    privacy = PrivacyConfig(
        scorer.name, epsilon=1.0, calibration="analytic", unsafe_seed=seed
    )
    return order, replace(make_release(summary, "a", privacy), account=ACCOUNT)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("scorer", SCORERS, ids=lambda one: one.name)
def test_no_honest_release_is_too_long(scorer: Scorer, adjacency: str) -> None:
    for seed in range(20):
        for rows in (ONE_CORNER, ONE_CORNER[:1], RNG.normal(size=(20, 6))):
            validate_reply(
                *made(scorer, rows, adjacency, seed), bounds=bound_function(scorer)
            )


@pytest.mark.parametrize("scorer", SCORERS[:2], ids=lambda one: one.name)
def test_the_bound_is_as_low_as_it_can_be(scorer: Scorer) -> None:
    public, bounds = scorer.publish(NEGATIVES), bound_function(scorer)
    assert bounds is not None
    summary = summarise(
        scorer,
        public,
        ONE_CORNER,
        np.ones(50, np.int64),
        "replace-one",
        50,
        np.ones(50),
    )
    bound = bounds(public, "replace-one", 50)
    assert 0.999 * bound.norm < np.linalg.norm(summary.values) <= bound.norm
    assert (summary.step, summary.sensitivity) == (bound.step, bound.sensitivity)


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda one: one.name)
def test_a_release_longer_than_its_records_and_noise_is_refused(scorer: Scorer) -> None:
    order, honest = made(scorer, ONE_CORNER)
    bounds, values = bound_function(scorer), honest.arrays["values"]
    assert bounds is not None
    limit = max_release_norm(
        bounds(order.public, "replace-one", 50), honest.scale, order.size
    )
    for factor in (0.999, 1.001):
        stretched = np.rint(values * (factor * limit / np.linalg.norm(values))).astype(
            np.int64
        )
        loud = replace(honest, arrays={"values": stretched})
        if factor < 1:
            validate_reply(order, loud, bounds=bounds)
            continue
        with pytest.raises(
            InvalidReplyError,
            match=r"its release has norm .*, but 50 records and its noise reach",
        ):
            validate_reply(order, loud, bounds=bounds)
        validate_reply(order, loud)  # somebody's own scorer may have any length


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda one: one.name)
@pytest.mark.parametrize("word", ["step", "sensitivity"])
def test_what_the_scorer_fixes_is_not_the_clients_to_state(
    scorer: Scorer, word: str
) -> None:
    order, honest = made(scorer, ONE_CORNER)
    for factor in (1 - 1e-5, 1 + 1e-5, 1e-3):
        lie = replace(honest, **{word: getattr(honest, word) * factor})
        with pytest.raises(
            InvalidReplyError,
            match=f"states a {word} of .*, but for 50 records the scorer's is",
        ):
            validate_reply(order, lie, bounds=bound_function(scorer))


def test_more_records_than_were_summed_are_not_claimed_without_a_trace() -> None:
    """The sensitivity of a regression falls with the number of records."""
    scorer = LogisticScorer(0.05)
    order, honest = made(scorer, ONE_CORNER)
    with pytest.raises(InvalidReplyError, match="states a sensitivity of"):
        validate_reply(
            order, replace(honest, records=500), bounds=bound_function(scorer)
        )


# A client's part of the ensemble


TEACHING = train_order(classes=3, teaching=Teaching("f00d", 4).to_json())
ONE = 2**ENSEMBLE_BITS


def part(**changes: Any) -> dict[str, Any]:
    honest = Ensemble.of(
        np.linspace(-5, 5, 12).reshape(4, 3), np.array([1e-8, 0.1, 0.5, 1.0])
    )
    return {**honest.to_arrays(), **changes}


def test_an_honest_part_passes_and_nobody_teaches_unasked() -> None:
    validate_reply(TEACHING, update(ensemble=part()))
    with pytest.raises(
        InvalidReplyError, match="its ensemble should be arrays logits, mass, squares"
    ):
        validate_reply(TEACHING, update(ensemble={}))
    with pytest.raises(
        InvalidReplyError,
        match="its ensemble should be empty, not 'logits', 'mass', 'squares'",
    ):
        validate_reply(train_order(classes=3), update(ensemble=part()))


def with_entry(name: str, value: int) -> dict[str, Any]:
    """One entry of the honest part is another."""
    arrays = {key: array.copy() for key, array in part().items()}
    arrays[name].flat[-1] = value
    return arrays


PARTS = {
    "no weight": (with_entry("mass", 0), "teacher weights"),
    "negative weight": (with_entry("mass", -1), "teacher weights"),
    "more than one": (with_entry("mass", ONE + 1), "teacher weights"),
    "negative square": (with_entry("squares", -1), "teacher weights"),
    "square above weight": (with_entry("squares", ONE + 1), "teacher weights"),
    "large logit": (with_entry("logits", ONE * 2**19), "logits exceed"),
    "smallest logit": (with_entry("logits", -(2**63)), "logits exceed"),
    "largest logit": (with_entry("logits", 2**63 - 1), "logits exceed"),
    "other rows": (
        part(mass=np.ones(5, np.int64)),
        r"'mass': of shape \(4,\), but it is int64\(5,\)",
    ),
    "other classes": (
        part(logits=np.ones((4, 2), np.int64)),
        r"'logits': of shape \(4, 3\), but it is int64\(4, 2\)",
    ),
    "reals": (
        part(mass=np.ones(4)),
        r"'mass': an array of int64, but it is float64\(4,\)",
    ),
    "32 bits": (
        part(mass=np.ones(4, np.int32)),
        r"'mass': an array of int64, but it is int32\(4,\)",
    ),
    "one more": (
        part(more=np.ones(4, np.int64)),
        "the arrays logits, mass, squares, not 'logits', 'mass', 'squares', 'm",
    ),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_that_cannot_be_is_refused(kind: str) -> None:
    arrays, reason = PARTS[kind]
    with pytest.raises(InvalidReplyError, match=reason):
        validate_reply(TEACHING, update(ensemble=arrays))

"""Replies that somebody made up, through the very path of real ones: each costs its
sender's contribution, no more.

More than a thousand are drawn. Each is serialized as clients do it, spoiled, carried as
Flower does it, and read.
"""

import tracemalloc
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fedaux.client.summaries import summarise
from fedaux.config.distillation import TeachersConfig
from fedaux.config.sections import PrivacyConfig
from fedaux.core.failures import Failure
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import from_array, serialize, to_array
from fedaux.flower.validation import max_release_norm
from fedaux.messages import MESSAGE_VERSION, Release, Update
from fedaux.methods.contribution import Contribution, Ensemble
from fedaux.privacy.mechanism import release
from fedaux.scoring.base import Reference, bound_function
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.teacher_weights import PublicEmbedding
from helpers.samples import ACCOUNT, prepare_order, train_order, update

RECORDS = 1000  # that a client may claim
RNG = np.random.default_rng(0)
NEGATIVES, OWN, SHOWN = (
    RNG.normal(size=(60, 6)),
    RNG.normal(size=(40, 6)),
    RNG.normal(size=(15, 6)),
)
SCORER = ClassEmbeddingScorer(3, 4)
PUBLIC = SCORER.publish(NEGATIVES)
SUMMARY = summarise(
    SCORER,
    PUBLIC,
    OWN,
    np.arange(len(OWN)) % 3,
    "replace-one",
    len(OWN),
    np.ones(len(OWN)),
)
PRIVACY = PrivacyConfig(epsilon=1.0, calibration="analytic", unsafe_seed=0)

ORDERS = {
    Update: train_order(),
    Release: prepare_order(
        scorer=SCORER.name, classes=3, size=SCORER.size(PUBLIC), public=PUBLIC
    ),
}
HONEST = {
    Update: update(),
    Release: replace(release(SUMMARY, "a", PRIVACY), account=ACCOUNT),
}

Change = Callable[[RecordDict], Any]  # in place
Changes = SearchStrategy[Change]


def answer(kind: type, change: Change) -> Any:
    """What the server makes of the honest reply once it is changed."""
    content = serialize(HONEST[kind])
    change(content)
    carried = recorddict_from_proto(recorddict_to_proto(content))
    grid = InProcessGrid(lambda message, _: Message(carried, reply_to=message), 1, {})
    (reply,) = GridFederation(
        grid, {"a": 2}, max_records=RECORDS, bounds=bound_function(SCORER)
    ).ask([ORDERS[kind]])
    return reply


def assert_refused(reply: Any) -> None:
    assert isinstance(reply, Failure)
    assert reply.client == "a"
    assert len(reply.reason) > 10
    # a fault of the grid, and not of the reply
    assert not reply.reason.startswith("error ")


def assert_equal(one: Any, two: Any) -> None:
    assert type(one) is type(two)
    for field in fields(two):
        ours, theirs = getattr(one, field.name), getattr(two, field.name)
        if isinstance(theirs, dict):
            assert ours.keys() == theirs.keys()
            assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
        else:
            assert ours == theirs


# How to spoil a reply: its facts, its records, its arrays, their bytes


def fact(name: str, values: SearchStrategy[Any]) -> Changes:
    return values.map(
        lambda value: lambda content: content["fedaux"].update({name: value})
    )


def record(name: str, values: list[Any]) -> Changes:
    return st.sampled_from(values).map(
        lambda value: lambda content: content.update({name: value})
    )


def arrays(room: str, change: Callable[[dict[str, Array]], dict[str, Array]]) -> Change:
    return lambda content: content.update(
        {room: ArrayRecord(change(dict(content[room])))}
    )


def entries(room: str, name: str, spoil: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Another array under an old name."""
    return arrays(
        room,
        lambda known: {**known, name: to_array(spoil(from_array(known[name]).copy()))},
    )


def raw(room: str, name: str, spoil: Callable[[bytes], bytes]) -> Change:
    """Other bytes under an old name, and what Flower says of them as it was."""

    def change(known: dict[str, Array]) -> dict[str, Array]:
        old = known[name]
        return {**known, name: Array(old.dtype, old.shape, old.stype, spoil(old.data))}

    return arrays(room, change)


def headed(descr: str, shape: str) -> bytes:
    """A header that promises what is not there, and 16 bytes."""
    text = (
        f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(
            117
        )
        + b"\n"
    )
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)


PROMISES = [
    headed("<f4", "(2684354560,)"),  # 10 GB
    headed("<i8", "(1342177280,)"),
    headed("<f4", "(51200, 51200)"),
    headed("<f4", "(2684354560, 0)"),
    headed("<f4", "(-1,)"),
    headed("<f4", "(9999999999999999999999,)"),
    headed("|V2147483647", "(5,)"),
    headed("|V0", "(2684354560,)"),
    headed("|O", "(2,)"),
]

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=30).filter(
    lambda name: (
        name not in ("a", "parameters", "counters", "values", "Update", "Release")
    )
)
ENDLESS = st.sampled_from([float("nan"), float("inf"), float("-inf")])
ANYTHING = st.one_of(
    TEXT,
    st.floats(),
    INT64,
    st.booleans(),
    st.binary(max_size=9),
    st.lists(INT64, max_size=3),
)


def lies(kind: type) -> Changes:
    """What no reply of this kind may say, whatever it holds."""
    told = {
        name: type(value)
        for name, value in vars(HONEST[kind]).items()
        if not isinstance(value, dict)
    }
    told |= {"version": int, "kind": str}
    others = [
        lambda: RecordDict(),
        lambda: serialize(train_order()),
        lambda: serialize(prepare_order()),
    ]
    others += [
        lambda other=other: serialize(HONEST[other])
        for other in HONEST
        if other is not kind
    ]
    return st.one_of(
        fact("client", TEXT),
        fact("records", st.integers(-(2**63), 0) | st.integers(RECORDS + 1, 2**63 - 1)),
        fact("version", INT64.filter(lambda version: version != MESSAGE_VERSION)),
        fact("kind", TEXT.filter(lambda name: name != kind.__name__)),
        st.sampled_from(sorted(told)).flatmap(
            lambda name: fact(
                name, ANYTHING.filter(lambda value: type(value) is not told[name])
            )
        ),
        st.sampled_from(sorted(told)).map(
            lambda name: lambda content: content["fedaux"].pop(name)
        ),
        st.sampled_from(others).map(
            lambda other: lambda content: (content.clear(), content.update(other()))
        ),
        record("fedaux", [ConfigRecord({}), ArrayRecord({})]),
    )


def honest_array(room: str, name: str) -> np.ndarray:
    return {"weights": HONEST[Update].weights, "arrays": HONEST[Release].arrays}[room][
        name
    ]


def junk(room: str, name: str) -> Changes:
    """Arrays, and bytes, that are not what was asked for."""
    asked = honest_array(room, name)
    size, dtype, length = asked.size, asked.dtype, 128 + asked.nbytes
    dtypes = [
        one
        for one in ("f2", "f4", "f8", "i4", "i8", "u8", "?", "c8", "S4", "M8[s]")
        if np.dtype(one) != dtype
    ]
    return st.one_of(
        st.sampled_from(dtypes).map(
            lambda other: entries(room, name, lambda _: np.zeros(size, other))
        ),
        st.just(
            entries(room, name, lambda array: array.astype(dtype.newbyteorder(">")))
        ),
        st.lists(st.integers(0, 7), max_size=4)
        .filter(lambda shape: shape != [size])
        .map(lambda shape: entries(room, name, lambda _: np.zeros(shape, dtype))),
        st.integers(0, length - 1).map(
            lambda end: raw(room, name, lambda data: data[:end])
        ),
        st.binary(min_size=1, max_size=40).map(
            lambda more: raw(room, name, lambda data: data + more)
        ),
        st.binary(max_size=200).map(lambda data: raw(room, name, lambda _: data)),
        st.sampled_from(PROMISES).map(lambda data: raw(room, name, lambda _: data)),
        TEXT.map(
            lambda other: arrays(room, lambda known: {**known, other: known[name]})
        ),
        TEXT.map(lambda other: arrays(room, lambda known: {other: known[name]})),
        record(room, [ConfigRecord({"x": 1}), ArrayRecord({})]),
        st.just(lambda content: content.pop(room)),
    )


def put(value: float) -> Callable[[int], Change]:
    def change(place: int) -> Change:
        return entries(
            "weights",
            "parameters",
            lambda array: np.where(np.arange(6) == place, np.float32(value), array),
        )

    return change


UPDATES = st.one_of(
    lies(Update),
    junk("weights", "parameters"),
    junk("weights", "counters"),
    fact("round", INT64.filter(lambda number: number != 2)),
    fact("loss", ENDLESS),
    fact("seconds", ENDLESS | st.floats(max_value=-1e-9, allow_infinity=False)),
    fact("noise", ENDLESS | st.floats(max_value=-1e-9, allow_infinity=False)),
    fact(
        "rate",
        ENDLESS
        | st.floats(max_value=0, allow_infinity=False)
        | st.floats(1.001, 1e300),
    ),
    fact("steps", st.integers(-(2**63), -1) | st.integers(10**6 + 1, 2**63 - 1)),
    ENDLESS.flatmap(lambda value: st.integers(0, 5).map(put(value))),
    st.floats(1e5, 3e38).flatmap(lambda value: st.integers(0, 5).map(put(value))),
    st.just(
        arrays(
            "weights",
            lambda known: {
                "parameters": known["counters"],
                "counters": known["parameters"],
            },
        )
    ),
    st.integers(10**7, 2**63 - 1).map(
        lambda count: entries(
            "weights", "counters", lambda _: np.array([count], np.int64)
        )
    ),
)


def scaled(name: str, factors: SearchStrategy[float]) -> Changes:
    return factors.flatmap(
        lambda factor: fact(name, st.just(getattr(HONEST[Release], name) * factor))
    )


def loud(factor: float) -> Change:
    """Longer than forty records and their noise can be."""
    limit = max_release_norm(
        SCORER.bound(PUBLIC, "replace-one", len(OWN)),
        HONEST[Release].scale,
        SCORER.size(PUBLIC),
    )
    return entries(
        "arrays",
        "values",
        lambda array: np.rint(array * (factor * limit / np.linalg.norm(array))).astype(
            np.int64
        ),
    )


NOT_ONE = st.floats(1e-6, 0.999) | st.floats(1.001, 1e6)
RELEASES = st.one_of(
    lies(Release),
    junk("arrays", "values"),
    fact("scorer", TEXT),
    fact("account", TEXT),
    fact("adjacency", TEXT | st.just("add-remove")),
    fact("calibration", TEXT | st.just("opendp")),
    fact("delta", ENDLESS | st.sampled_from([0.0, 1.0, -1e-5, 1e-300])),
    *(
        fact(name, ENDLESS | st.floats(max_value=0))
        for name in ("epsilon", "scale", "step", "sensitivity")
    ),
    # less noise than the budget asks for claims a precision that is not there
    scaled("scale", NOT_ONE),
    scaled("step", NOT_ONE),
    scaled("sensitivity", NOT_ONE),
    scaled("epsilon", st.sampled_from([0.5, 2.0, 1e3, 1e12])),
    st.floats(1.001, 1e6).map(loud),
    st.just(entries("arrays", "values", lambda array: np.full_like(array, -(2**63)))),
)


@settings(deadline=None, max_examples=500)
@given(UPDATES)
def test_no_spoiled_update_is_used(change: Change) -> None:
    assert_refused(answer(Update, change))


@settings(deadline=None, max_examples=400)
@given(RELEASES)
def test_no_spoiled_release_is_used(change: Change) -> None:
    assert_refused(answer(Release, change))


@pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.__name__)
def test_the_honest_reply_is_used(kind: type) -> None:
    assert_equal(answer(kind, lambda content: None), HONEST[kind])


@settings(deadline=None, max_examples=100)
@given(TEXT, ANYTHING, st.lists(st.integers(0, 2**31 - 1), max_size=3))
def test_what_nobody_asked_for_changes_nothing(
    name: str, value: Any, shape: list[int]
) -> None:
    """More facts, more records, and a lie in Flower's own words on an array, whose
    bytes alone count.
    """

    def lie(known: dict[str, Array]) -> dict[str, Array]:
        return {
            key: Array(name, tuple(shape), name, array.data)
            for key, array in known.items()
        }

    def change(content: RecordDict) -> None:
        content["fedaux"][f"more {name}"] = value
        content[f"more {name}"] = ConfigRecord({"x": 1})
        arrays("weights", lie)(content)

    assert_equal(answer(Update, change), HONEST[Update])


# Bytes that were changed at random may still be a reply: then what is made of it is
# finite


def flipped(room: str, name: str) -> Changes:
    length = 128 + honest_array(room, name).nbytes
    flips = st.lists(
        st.tuples(st.integers(0, length - 1), st.integers(1, 255)),
        min_size=1,
        max_size=8,
    )

    def spoil(at: list[tuple[int, int]]) -> Callable[[bytes], bytes]:
        def flip(data: bytes) -> bytes:
            found = bytearray(data)
            for place, bits in at:
                found[place] ^= bits
            return bytes(found)

        return flip

    return flips.map(lambda at: raw(room, name, spoil(at)))


@settings(deadline=None, max_examples=300)
@given(flipped("weights", "parameters") | flipped("weights", "counters"))
def test_an_average_stays_finite_whatever_survives(change: Change) -> None:
    reply, total = (
        answer(Update, change),
        Contribution.of("p", HONEST[Update].weights, 7),
    )
    if isinstance(reply, Failure):
        assert_refused(reply)
    else:
        total.merge(Contribution.of("p", reply.weights, reply.records))
    for name, array in total.finish()[0]["p"].items():
        assert np.isfinite(array).all()
        assert (array.shape, array.dtype) == (
            HONEST[Update].weights[name].shape,
            HONEST[Update].weights[name].dtype,
        )


@settings(deadline=None, max_examples=300)
@given(flipped("arrays", "values"), st.sampled_from([1.0, 0.5]))
def test_an_ensemble_stays_finite_whatever_survives(
    change: Change, share: float
) -> None:
    reply, known = answer(Release, change), {"b": replace(HONEST[Release], client="b")}
    if isinstance(reply, Failure):
        assert_refused(reply)
    else:
        known["a"] = reply
    reference, shown = (
        Reference(SCORER.embed(PUBLIC, NEGATIVES)),
        SCORER.embed(PUBLIC, SHOWN),
    )
    embedding = PublicEmbedding(
        SCORER,
        TeachersConfig(max_share=share),
        {"p": PUBLIC},
        {"p": reference},
        {"p": shown},
        lambda _: "p",
    )
    weights, ensemble = (
        embedding.teacher_weights(known, ["a", "b"]),
        Ensemble.empty(len(shown), 3),
    )
    for number, client in enumerate(known):
        ensemble.merge(
            Ensemble.of(np.full((len(shown), 3), float(number)), weights.of(client))
        )
    assert np.isfinite(ensemble.soft_labels()).all()
    assert 1 - 1e-6 <= ensemble.effective_teachers() <= len(known) + 1e-6


@pytest.mark.parametrize(
    ("kind", "room", "name"),
    [(Update, "weights", "parameters"), (Release, "arrays", "values")],
)
@pytest.mark.parametrize("promise", PROMISES, ids=range(len(PROMISES)))
def test_a_header_that_promises_gigabytes_takes_no_memory(
    kind: type, room: str, name: str, promise: bytes
) -> None:
    change = raw(room, name, lambda _: promise)
    answer(kind, change)  # whatever is imported or cached on the way
    tracemalloc.start()
    try:
        reply = answer(kind, change)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_refused(reply)
    assert peak < 2**20

"""Whatever a server puts into a field of an order: the client refuses, or one record
moves its reply as far as claimed.

Real handlers, neighbouring data on disk. The noise is drawn from a known seed, so it is
the same at both neighbours, and the distance between their replies is exact.
"""

import itertools
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedaux.audit.site import AuditedSite, HostileServer, ask, refused
from fedaux.client import handlers
from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, FederationConfig, PretrainConfig
from fedaux.core.arrays import Arrays
from fedaux.core.failures import OrderError
from fedaux.flower.client_app import app
from fedaux.flower.federation import read_reply
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import MessageError, serialize
from fedaux.messages import (
    ORDERS,
    Counts,
    LookOrder,
    PrepareOrder,
    Release,
    SumOrder,
    SumsOrder,
    SumTerms,
    Tallies,
    Tally,
    TrainOrder,
    Update,
    fields_of,
    identity,
)
from fedaux.messages.replies import sums_shapes
from fedaux.messages.tallies import MAX_TALLIES, MEANINGS_OF_TALLIES
from fedaux.methods.summed_update import vector_length
from fedaux.privacy.roster import ROSTER_FILE, make_signing_key, write_roster
from fedaux.scoring.features import extractor_hash
from fedaux.server.preparation import initial_state
from fedaux.server.server import make_server
from helpers.audited_sites import audited_site, set_mlp, with_own_sends, write_rows

WIDTH, CLASSES = 6, 2
SPEC = PrototypeSpec.of("mlp", hidden=4, features=WIDTH, norm="none")
INT64_MIN = np.iinfo(np.int64).min
# every type that numpy has, in both byte orders; objects would need pickle, which is
# never sent
DTYPES = sorted(
    {
        np.dtype(kind).newbyteorder(order).str
        for kind in {
            *np.sctypeDict.values(),
            "S5",
            "U5",
            "V5",
            "datetime64[s]",
            "timedelta64[s]",
        }
        for order in "<>"
        if np.dtype(kind).kind != "O"
    }
)
FILLS: tuple[Any, ...] = (
    0,
    -0.0,
    1,
    -1,
    7.5,
    np.nan,
    np.inf,
    -np.inf,
    5e-324,
    1e-45,
    3e38,
    1e308,
    INT64_MIN,
    2**62,
)
SHAPES: tuple[Callable[[tuple[int, ...]], tuple[int, ...]], ...] = (
    lambda shape: (0,),
    lambda shape: (),
    lambda shape: (1,),
    lambda shape: (*shape, 1),
    lambda shape: (1, *shape),
    lambda shape: tuple(size + 1 for size in shape),
    lambda shape: tuple(reversed(shape)),
)
SCALARS: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, INT64_MIN),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *(
        True,
        False,
        "",
        "x",
        "x" * 10**6,
        "{}",
        "[]",
        "null",
        '{"examples": -1}',
        "../../x",
        "\x00",
        b"bytes",
    ),
)


def filled(dtype: str, shape: tuple[int, ...], fill: Any) -> np.ndarray | None:
    """None where numpy has no such array."""
    try:
        with np.errstate(all="ignore"):
            return np.full(shape, fill).astype(dtype)
    except (ValueError, TypeError, OverflowError):
        return None


def odd_arrays(honest: np.ndarray) -> Iterator[np.ndarray]:
    """In place of an honest array: each type with its values, each value in the right
    type, each other shape.
    """
    for dtype in DTYPES:
        with np.errstate(all="ignore"):
            yield honest.astype(dtype)
    for dtype, fill in itertools.product(("<f4", "<i8", "<f2"), FILLS):
        array = filled(dtype, honest.shape, fill)
        if array is not None and array.size:
            spoiled = honest.astype(dtype)
            spoiled.flat[0] = array.flat[0]
            yield spoiled
    for fill in FILLS:
        array = filled(honest.dtype.str, honest.shape, fill)
        if array is not None:
            yield array
    for shape in SHAPES:
        yield np.ones(shape(honest.shape), honest.dtype)


def odd_fields(order: Any, alike: bool = False) -> Iterator[tuple[str, Any]]:
    """(field, what a hostile server puts there). Of arrays that are all alike, one for
    each site, the first and the last stand for the others.
    """
    for field in fields_of(type(order)):
        honest = getattr(order, field.name)
        if not field.has_arrays:
            yield from ((field.name, scalar) for scalar in SCALARS)
            continue
        yield field.name, {}
        names = list(honest or ("mean",))
        for name in dict.fromkeys((names[0], names[-1])) if alike else names:
            rest = {other: array for other, array in honest.items() if other != name}
            yield field.name, rest
            yield field.name, {**rest, "other": np.zeros(3, np.float32)}
            yield from (
                (field.name, {**honest, name: odd})
                for odd in odd_arrays(honest.get(name, np.zeros(2)))
            )


def consistent(order: Any, field: str) -> Any:
    """A server that wants to be answered states the right hash and size."""
    if field == "extractor" and order.extractor:
        try:
            order = replace(order, h0=extractor_hash(order.extractor, order.prototype))
        except (ValueError, TypeError):
            return order
    if (
        isinstance(order, PrepareOrder)
        and field == "public"
        and order.public.get("basis", np.zeros(1)).ndim == 2
    ):
        columns = order.public["basis"].shape[1]
        first, triangle = CLASSES * (columns + 1), columns * (columns + 1) // 2
        sizes = {"class-embedding": first, "class-moments": first + triangle}
        order = replace(order, size=sizes.get(order.scorer, max(1, columns)))
    if isinstance(order, LookOrder) and field == "tallies":
        with suppress(OrderError):
            size = Tallies.from_json(order.tallies).size(CLASSES)
            order = replace(order, size=size)
    return order


def odd_tallies() -> Iterator[str]:
    """Bins that a server might like: any kind, loud or quiet, many of them, or bins
    that overlap.
    """
    edges: tuple[Any, ...] = ((), (0.0,), (-1.0, 1.0), (1.0, -1.0), (0.0, 0.0))
    edges += ((math.nan,), (math.inf,), tuple(range(500)), ("x",))
    for kind, edge in itertools.product([*MEANINGS_OF_TALLIES, "records"], edges):
        yield Tallies({"a": Tally(kind, 1.0, edge)}).to_json()
    for values in ((), ("a",), ("a", "a")):
        yield Tallies({"a": Tally("column", 1.0, (), "age", values)}).to_json()
    yield Tallies({"a": Tally("column", 1.0, (0.0,), "age")}).to_json()
    yield Tallies({"a": Tally("classes", 1.0, (), "age")}).to_json()
    for weight in (0.0, -1.0, 1 / 8, 0.1, 1 + 1e-9, 1e308, math.nan):
        yield Tallies({"a": Tally("answers", weight)}).to_json()
    for count in (0, 2, MAX_TALLIES, MAX_TALLIES + 1):
        names = map(str, range(count))
        yield Tallies(dict.fromkeys(names, Tally("hits"))).to_json()


class Pair:
    """Two sites that differ in one record of six."""

    def __init__(
        self,
        folder: Path,
        train: bool = False,
        scorer: str = "class-embedding",
        looks: bool = False,
    ) -> None:
        privacy: dict[str, Any] = {"epsilon": 1.0, "scorer": scorer, "unsafe_seed": 5}
        more: dict[str, Any] = {"head_only": True, "method": "fedaux"}
        if train:
            privacy |= {
                "epsilon_total": 2.0,
                "private_training": True,
                "train_rounds": 1,
                "sample_rate": 1.0,
            }
            more |= {
                "method": "scaffold",
                "rounds": 1,
                "local": {"epochs": 1, "optimizer": "sgd"},
            }  # one step, for which `ask` knows the bound
        if looks:
            privacy["look_epsilon"] = 1.0
        self.scorer = scorer
        x = np.abs(np.random.default_rng(0).normal(size=(6, 3)))
        other = x.copy()
        other[0] = (1000.0, 0.0, 3.0)
        self.sites = [
            audited_site(
                write_rows(folder / name, rows, [0, 1] * 3),
                SPEC,
                privacy=privacy,
                **more,
            )
            for name, rows in (("one", x), ("other", other))
        ]
        if looks:
            self.sites = [holding_all_out(site) for site in self.sites]
        self.server = HostileServer.against(self.sites[0], (3,), CLASSES)
        set_mlp(self.server.model, first=np.eye(4, 3), second=np.eye(WIDTH, 4))

    def prepare(self) -> PrepareOrder:
        if self.scorer != "logistic":
            basis = np.eye(WIDTH, 3, dtype=np.float32)
            split = (
                {"split": np.array([0.7, 0.1, 0.7], np.float32)}
                if self.scorer == "class-moments"
                else {}
            )
            return self.server.prepare(
                {"mean": np.zeros(WIDTH, np.float32), "basis": basis, **split}
            )
        one = np.ones(1, np.float32)
        public = {
            "mean": np.zeros(WIDTH, np.float32),
            "radius": one,
            "negatives": np.eye(4, WIDTH, dtype=np.float32),
        }
        return self.server.prepare(public)

    def train(self) -> TrainOrder:
        head = np.zeros(CLASSES * (WIDTH + 1), np.float32)
        order = replace(
            self.server.train(head, lr=0.5), method="scaffold", optimizer="sgd", run="r"
        )
        statistics = {
            "mean": np.zeros(WIDTH, np.float32),
            "deviation": np.ones(WIDTH, np.float32),
        }
        return replace(
            order, broadcast={"c": np.zeros_like(head)}, standardisation=statistics
        )

    def sums(self) -> SumsOrder:
        order = self.prepare()
        return SumsOrder(
            "site",
            order.prototype,
            CLASSES,
            "moments",
            WIDTH,
            order.h0,
            0,
            order.extractor,
        )

    def look(self) -> LookOrder:
        tallies = {"hits": Tally("hits"), "scores": Tally("scores", 0.5, (-1.0, 1.0))}
        head = np.linspace(-1, 1, CLASSES * (WIDTH + 1))
        return self.server.look(Tallies(tallies), head)

    def ask(self, order: Any) -> str:
        """ "refused" by both, or "answered" by both, at most as far apart as the client
        claims.
        """
        replies = []
        try:
            content = serialize(order)
            for site in self.sites:
                site.forget()
                replies.append(site.message(content, ORDERS[type(order)]))
        except (MessageError, ValueError, TypeError, OverflowError, KeyError):
            return "not sent"  # Flower itself cannot carry it
        answers = [not reply.has_error() for reply in replies]
        assert answers[0] == answers[1], "one neighbour answers, the other does not"
        if not answers[0]:
            words = {reply.error.reason for reply in replies}
            assert all(refused(reply) for reply in replies)
            assert words != {"failed"}, (
                "an order that fails half-way has been paid for: it should have been "
                "refused"
            )
            return "refused"
        if isinstance(order, SumsOrder):
            return "answered"
        if isinstance(order, PrepareOrder | LookOrder):
            kind = Counts if isinstance(order, LookOrder) else Release
            one, other = (read_reply(kind, reply) for reply in replies)
            assert {**vars(one), "arrays": 0, "account": 0} == {
                **vars(other),
                "arrays": 0,
                "account": 0,
            }
            moved = np.linalg.norm(
                (one.arrays["values"] - other.arrays["values"]).astype(np.float64)
            )
            assert moved <= one.sensitivity, f"moved {moved}, claimed {one.sensitivity}"
            return "answered"
        one, other = (read_reply(Update, reply) for reply in replies)
        # clipped to 1, exchanged for another: at most 2 in the sum of gradients
        step = order.lr / other.records * 2.0
        apart = np.linalg.norm(
            one.weights["parameters"].astype(np.float64) - other.weights["parameters"]
        )
        size = np.abs(one.weights["parameters"].astype(np.float64)).max()
        rounding = (
            4
            * max(
                np.finfo(np.float32).eps,
                float(np.finfo(one.weights["parameters"].dtype).eps),
            )
            * size
        )
        assert not apart > step + rounding * np.sqrt(len(one.weights["parameters"])), (
            f"{apart} > {step}"
        )
        return "answered"


def holding_all_out(site: AuditedSite) -> AuditedSite:
    """The site, with all of its six records held out, so that the one in which
    neighbours differ is among them.
    """
    config = site.config
    data = replace(config.data, site_test_fraction=0.95)
    federation = replace(config.federation, sends=("noisy counts",))
    return replace(site, config=replace(config, data=data, federation=federation))


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "prepare, class-embedding": ({}, "prepare"),
    "prepare, class-moments": ({"scorer": "class-moments"}, "prepare"),
    "prepare, logistic": ({"scorer": "logistic"}, "prepare"),
    "train privately": ({"train": True}, "train"),
    "sums that no owner agreed to": ({}, "sums"),
    "look": ({"looks": True}, "look"),
}
# (cases that reach a client, of them answered): so that the enumeration does not shrink
# unseen
LEAST = {
    "prepare, class-embedding": (500, 50),
    "prepare, class-moments": (500, 50),
    "prepare, logistic": (600, 50),
    "train privately": (1300, 200),
    "sums that no owner agreed to": (380, 0),
    "look": (600, 80),
}


@pytest.mark.parametrize("case", CASES)
def test_every_field_is_refused_or_keeps_all_other_records(
    case: str, tmp_path: Path
) -> None:
    arguments, kind = CASES[case]
    pair = Pair(tmp_path, **arguments)
    order, found = getattr(pair, kind)(), Counter[str]()
    assert pair.ask(order) == ("refused" if kind == "sums" else "answered")
    others = [("tallies", odd) for odd in odd_tallies()] if kind == "look" else []
    for field, odd in [*odd_fields(order), *others]:
        try:
            found[pair.ask(consistent(replace(order, **{field: odd}), field))] += 1
        except AssertionError as error:
            shown = (
                {name: (array.dtype, array.shape) for name, array in odd.items()}
                if isinstance(odd, dict)
                else odd
            )
            raise AssertionError(
                f"{case}, {field} = {shown!r:.300}: {error}"
            ) from error
    print(case, dict(found))
    sent, answered = LEAST[case]
    assert found["refused"] + found["answered"] >= sent
    assert found["answered"] >= answered


ARRAYS = npst.arrays(
    npst.scalar_dtypes() | npst.floating_dtypes(endianness="=", sizes=(32,)),
    npst.array_shapes(max_dims=3, max_side=WIDTH)
    | st.sampled_from([(WIDTH,), (WIDTH, 1), (WIDTH, 3)]),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("pair"))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sampled_from(["mean", "basis"]), ARRAYS)
def test_any_array_is_refused_or_keeps_all_other_records(
    pair: Pair, name: str, array: np.ndarray
) -> None:
    order = pair.prepare()
    public: Arrays = {**order.public, name: array}
    assert pair.ask(consistent(replace(order, public=public), "public")) in (
        "refused",
        "answered",
        "not sent",
    )


SUMMING = with_own_sends(
    Config(
        method="ridge",
        prototypes=(SPEC,),
        data=DataConfig(clients=6),
        pretrain=PretrainConfig(epochs=0),
        federation=FederationConfig(secure=True),
    )
)
STEPS = ("keys", "shares", "masked", "survivors", "unmask")


class SumOfSix:
    """Six sites and an honest server, which asks all of them for every earlier step."""

    def __init__(self, vault: Path) -> None:
        self.vault = vault
        self.features = vault.with_name("features")
        server = make_server(SUMMING, cache=vault / "cache")
        state = initial_state(server)
        self.names = list(server.clients)
        homes = {name: vault / name for name in self.names}
        roster = {name: make_signing_key(home) for name, home in homes.items()}
        for home in homes.values():
            write_roster(home / ROSTER_FILE, roster)
        plain = [server.orders.sums(state, name, "moments") for name in self.names]
        length = vector_length(sums_shapes(server.classes, plain[0].width, "moments"))
        self.terms = SumTerms(
            "run", identity(plain[0]), 0, self.names, 5, 1, 0.0, length
        )
        self.first = {
            order.client: replace(order, sum=self.terms.to_json()) for order in plain
        }

    def settings(self, name: str) -> dict[str, str]:
        own = {
            "config": json.dumps(SUMMING.to_dict()),
            "vault": str(self.vault),
            "clients": name,
        }
        return {**own, "features": str(self.features)}

    def answer(self, order: SumsOrder | SumOrder) -> dict[str, np.ndarray]:
        site = Site(SUMMING, self.vault, (order.client,), self.features)
        return dict(handlers.answer(order, site).arrays)  # type: ignore[union-attr]

    def order(self, step: str, name: str) -> SumsOrder | SumOrder:
        """The honest order of a step, after all sites have answered those before it."""
        if step == "keys":
            return self.first[name]
        return SumOrder(name, self.terms.to_json(), step, self.questions(step)[name])

    def questions(self, step: str) -> dict[str, Arrays]:
        """What an honest server asks each site at a step."""
        if step == "survivors":
            self.answers("masked")
            nothing = np.zeros(0, np.uint8)
            return {site: dict.fromkeys(self.names, nothing) for site in self.names}
        before = self.answers(STEPS[STEPS.index(step) - 1])
        if step == "masked":
            return {
                name: {
                    other: before[other][name] for other in self.names if other != name
                }
                for name in self.names
            }
        said = {name: before[name][name] for name in self.names}
        return dict.fromkeys(self.names, said)

    def answers(self, step: str) -> dict[str, Arrays]:
        if step == "keys":
            return {name: self.answer(order) for name, order in self.first.items()}
        questions = self.questions(step)
        return {
            name: self.answer(
                SumOrder(name, self.terms.to_json(), step, questions[name])
            )
            for name in self.names
        }


def odd_terms(
    order: SumsOrder | SumOrder, terms: SumTerms
) -> Iterator[tuple[str, Any]]:
    """Terms that differ in one entry, in what it is or in its type."""
    for name, honest in vars(terms).items():
        others: list[Any] = [*SCALARS[:13], None, [], ["x"], {}]
        if isinstance(honest, int | float):
            others += [honest + 1, honest - 1, honest / 2, str(honest)]
        for odd in others:
            if type(odd) is not type(honest) or odd != honest:
                yield "sum", json.dumps({**vars(terms), name: odd})


@pytest.mark.parametrize("step", STEPS)
def test_every_field_around_a_secure_sum_is_refused_or_answered(
    step: str, tmp_path: Path
) -> None:
    """What decides on the vector was fixed when the sum began, so refusing is all that
    is asked of the later steps.

    A site must not fail, and must answer the honest order as before.
    """
    vault, before, found = tmp_path / "vault", tmp_path / "before", Counter[str]()
    asked = SumOfSix(vault)
    name = asked.names[0]
    order = asked.order(step, name)
    shutil.copytree(vault / name, before)
    grid = InProcessGrid(app, 1, asked.settings(name))
    plain = asked.terms.to_json()
    for field, odd in [
        ("sum", plain),
        *odd_fields(order, alike=True),
        *odd_terms(order, asked.terms),
    ]:
        shutil.rmtree(vault / name)
        shutil.copytree(before, vault / name)
        try:
            content = serialize(replace(order, **{field: odd}))
        except (MessageError, ValueError, TypeError, OverflowError, KeyError):
            found["not sent"] += 1
            continue
        reply = ask(grid, content, ORDERS[type(order)])
        if reply.has_error():
            assert refused(reply), (field, odd, reply.error)
            assert reply.error.reason != "failed", (field, odd)
            again = ask(grid, serialize(order), ORDERS[type(order)])
            assert not again.has_error(), (field, odd, again.error)
        found["refused" if reply.has_error() else "answered"] += 1
    print(step, dict(found))
    assert found["answered"] >= 1  # the honest one
    assert found["refused"] >= 60

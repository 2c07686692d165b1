"""The plan of a run: everything that a server will ask of the sites, before it asks for
any of it.

An owner approves a plan, once for the whole run. It names the method, how many orders
of which kind there will be at most, and for each of them all that is fixed for the run:
networks, epochs, the hash of the extractor, the hash of the public arrays. What changes
from round to round, such as the model to start from, cannot be known beforehand. The
owner approves a number of such rounds instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedaux.core.failures import OrderError
from fedaux.messages.declaration import fields_of
from fedaux.messages.identity import run_facts
from fedaux.messages.orders import (
    NAME,
    DataOrder,
    LookOrder,
    PrepareOrder,
    SumsOrder,
    TrainOrder,
)
from fedaux.messages.types import Hash, Number, Text, Type

KIND_OF_ORDER: dict[type, str] = {
    PrepareOrder: "release",
    SumsOrder: "sums",
    TrainOrder: "train",
    LookOrder: "look",
}
SPARE_ROUNDS = 5  # rounds that a server may ask for once more, after a fault of its own
# secure sums with noise: the second one costs those sites again whose vector has left
# them
ATTEMPTS = 2


@dataclass(frozen=True)
class Ask:
    """Orders of one kind that a run will send to a site."""

    kind: str  # release, sums, train or look
    at_most: int  # orders that differ; the same order may come as often as it takes
    facts: dict[str, Any]  # what is fixed for the run (`identity.run_facts`)

    @classmethod
    def of(cls, order: DataOrder, at_most: int) -> Ask:
        return cls(KIND_OF_ORDER[type(order)], at_most, run_facts(order))

    def check(self) -> None:
        """Raise an `OrderError` unless these are facts that orders of this kind have,
        each of its type.
        """
        kinds = {name: kind for kind, name in KIND_OF_ORDER.items()}
        if self.kind not in kinds:
            raise OrderError(
                f"Cannot read the plan of the run: it asks for {self.kind!r}, which is "
                "not known here. Install the same version of fedaux at the server and "
                "the sites."
            )
        _check("at_most", Number(1, 2**31), self.at_most)
        declared = {
            field.name: field
            for field in fields_of(kinds[self.kind])
            if field.is_fixed_for_run
        }
        needed = {name for name, field in declared.items() if not field.has_arrays}
        if not needed <= set(self.facts) <= set(declared):
            raise OrderError(
                f"Cannot read the plan of the run: orders to {self.kind} have the "
                f"facts {', '.join(declared)}, not {', '.join(self.facts)}. Install "
                "the same version of fedaux at the server and the sites."
            )
        for name, value in self.facts.items():
            kind = (
                Hash() if declared[name].has_arrays else declared[name].type_for(None)
            )
            _check(name, kind, value)

    def covers(self, order: DataOrder) -> bool:
        return self.kind == KIND_OF_ORDER[type(order)] and self.facts == _as_json(
            run_facts(order)
        )


@dataclass(frozen=True)
class RunPlan:
    """What a run will ask of every site."""

    run: str
    method: str
    rounds: int
    secure: bool
    asks: tuple[Ask, ...]
    # of a table, the hash of the schema by which all parties encode records
    schema: str = ""

    def check(self) -> None:
        """Raise an `OrderError` unless this is a plan that a person can read: known
        facts, each of its type.
        """
        _check("run", NAME, self.run)
        _check("method", NAME, self.method)
        _check("rounds", Number(1, 2**31), self.rounds)
        _check("schema", Text(64), self.schema)
        for ask in self.asks:
            ask.check()

    @classmethod
    def from_json(cls, text: str) -> RunPlan:
        """Read a plan; raise an `OrderError` if the text is none."""
        try:
            content = json.loads(text)
            asks = tuple(
                Ask(str(ask["kind"]), int(ask["at_most"]), dict(ask["facts"]))
                for ask in content["asks"]
            )
            return cls(
                str(content["run"]),
                str(content["method"]),
                int(content["rounds"]),
                bool(content["secure"]),
                asks,
                str(content.get("schema", "")),
            )
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
        ) as error:
            raise OrderError(
                "Cannot read the plan of the run: it is not of this version of fedaux. "
                "Install the same version at the server and the sites."
            ) from error

    def to_json(self) -> str:
        content = {**vars(self), "asks": [vars(ask) for ask in self.asks]}
        if not self.schema:
            del content["schema"]
        return json.dumps(content, sort_keys=True)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def ask_for(self, order: DataOrder) -> Ask | None:
        """Return what of the plan covers an order, or None if nothing does."""
        return next((ask for ask in self.asks if ask.covers(order)), None)


def plan_of(
    run: str,
    method: str,
    rounds: int,
    secure: bool,
    orders: Sequence[DataOrder],
    schema: str = "",
) -> RunPlan:
    """Make the plan of a run from one order of each kind and prototype; equal ones are
    listed once. `schema` is the hash of a table's.
    """
    asks: list[Ask] = []
    for order in orders:
        ask = Ask.of(order, most_orders(order, rounds, secure))
        if ask not in asks:
            asks.append(ask)
    return RunPlan(run, method, rounds, secure, tuple(asks), schema)


def most_orders(order: DataOrder, rounds: int, secure: bool) -> int:
    """Return how many orders that are like this one a run may need. The same order may
    come as often as it takes.
    """
    if isinstance(order, TrainOrder):
        return rounds + SPARE_ROUNDS
    with_noise = isinstance(order, PrepareOrder | LookOrder)
    return ATTEMPTS if secure and with_noise else 1


def _check(name: str, kind: Type, value: Any) -> None:
    problem = kind.problem(value)
    if problem:
        raise OrderError(
            f"Cannot read the plan of the run: its {name} must be {problem}. Install "
            "the same version of fedaux at the server and the sites."
        )


def _as_json(facts: dict[str, Any]) -> Any:
    return json.loads(json.dumps(facts))

"""What an order may hold, to the last bit: the type, shape and range of every field, checked before a handler sees it.

An order comes from a server that may be hostile, and a client's proof of privacy is about numbers of a certain type: an
integer where a float was meant wraps where a float would not, and another byte order or a broader type takes another
kernel. So nothing is converted here: a field is what the table says, or the order is refused. Every refusal depends on
the order alone, so it reveals nothing of a record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedaux.core.messages import (
    HelloOrder,
    OrderError,
    PrepareOrder,
    SumOrder,
    SumsOrder,
    SumTerms,
    Teaching,
    TrainOrder,
)

MAX_RANDOM_FEATURES = 100_000
MAX_JSON = 100_000  # characters
TINY = float(np.finfo(np.float32).tiny)  # the smallest normal float32
ANY_NAME = "*"


@dataclass(frozen=True)
class Text:
    """Text of at most `length` characters, or one of `choices`."""

    length: int = 256
    choices: tuple[str, ...] = ()

    def problem(self, value: Any) -> str:
        if type(value) is not str or len(value) > self.length or (self.choices and value not in self.choices):
            return f"one of {', '.join(self.choices)}" if self.choices else f"text of at most {self.length} characters"
        return ""


@dataclass(frozen=True)
class JsonObject:
    """Text that is a JSON object with exactly these entries, each of its type; without `entries`, any object."""

    entries: Mapping[str, type] | None = None
    optional: bool = False  # whether "" may stand for no object

    def problem(self, value: Any) -> str:
        if self.optional and value == "":
            return ""
        try:
            found = json.loads(value) if type(value) is str and len(value) <= MAX_JSON else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return f"a JSON object of at most {MAX_JSON} characters"
        if self.entries is not None and {name: type(entry) for name, entry in found.items()} != self.entries:
            return f"a JSON object with {', '.join(f'{name} ({kind.__name__})' for name, kind in self.entries.items())}"
        return ""


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`, both included: an integer if `whole`, else a float. Never NaN."""

    low: float
    high: float
    whole: bool = True

    def problem(self, value: Any) -> str:
        kind = int if self.whole else float
        within = type(value) is kind and self.low <= value <= self.high
        return "" if within else f"{'an integer' if self.whole else 'a number'} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Flag:
    def problem(self, value: Any) -> str:
        return "" if type(value) is bool else "true or false"


@dataclass(frozen=True)
class ArrayType:
    """An array of one of these types, in the machine's own byte order, with a given shape.

    Letters in the shape stand for sizes that must agree within a field, None for any shape. Finite values lie between
    `low` and `high`; there is no NaN, and infinities only where `finite` is false.
    """

    types: tuple[str, ...]
    shape: tuple[str | int, ...] | None
    low: float = -np.inf
    high: float = np.inf
    finite: bool = True

    def problem(self, array: Any, sizes: dict[str, int]) -> str:
        """Return what the array should be, or "" if it is; the sizes of letters are added to `sizes`."""
        if not isinstance(array, np.ndarray) or array.dtype not in [np.dtype(name) for name in self.types]:
            return f"an array of {' or '.join(self.types)}"
        if self.shape is not None and not _fits(array.shape, self.shape, sizes):
            known = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            return f"of shape ({', '.join(map(str, self.shape))}){' with ' + known if known else ''}"
        if not _within(array, self):
            bounds = f" from {self.low:g} to {self.high:g}" if np.isfinite([self.low, self.high]).any() else ""
            return f"{'finite ' if self.finite else ''}numbers{bounds}"
        return ""


def _fits(shape: tuple[int, ...], expected: tuple[str | int, ...], sizes: dict[str, int]) -> bool:
    if len(shape) != len(expected):
        return False
    return all(
        size == (sizes.setdefault(name, size) if isinstance(name, str) else name) and size > 0
        for size, name in zip(shape, expected, strict=True)
    )


def _within(array: NDArray[Any], kind: ArrayType) -> bool:
    """Check the range without copying the array: NaN fails both comparisons, and any infinity is an extreme."""
    if not array.size:
        return True
    low, high = array.min(), array.max()
    if kind.finite and not (np.isfinite(low) and np.isfinite(high)):
        return False
    return bool(low >= kind.low and high <= kind.high)


@dataclass(frozen=True)
class ArrayGroup:
    """Arrays by name; `ANY_NAME` stands for names that the table cannot know, those of a user's own method or scorer.

    `complete`: either all names are present or none. `needed`: at least one is present.
    """

    arrays: Mapping[str, ArrayType]
    complete: bool = True
    needed: bool = False

    def problem(self, value: Any) -> str:
        if not isinstance(value, dict) or (self.needed and not value):
            return f"arrays {', '.join(self.arrays)}"
        known = ANY_NAME in self.arrays or set(value) <= set(self.arrays)
        if not known or (self.complete and value and ANY_NAME not in self.arrays and set(value) != set(self.arrays)):
            return f"the arrays {', '.join(self.arrays)}, not {', '.join(map(repr, value))}"
        sizes: dict[str, int] = {}
        for name, array in value.items():
            problem = self.arrays.get(name, self.arrays.get(ANY_NAME)).problem(array, sizes)  # type: ignore[union-attr]
            if problem:
                shown = f"{array.dtype}{array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                return f"{name!r}: {problem}; it is {shown}"
        return ""


Rule = Text | JsonObject | Number | Flag | ArrayGroup
Choice = Callable[[Any], Rule]  # chooses a rule by the order's other fields

FLOAT, HALF, LONG = ("float32",), ("float32", "float16"), ("int64",)
NAME, HASH, SPEC = Text(256), Text(128), Text(MAX_JSON)
TEACHING = JsonObject(get_type_hints(Teaching), optional=True)
_TERMS = {**get_type_hints(SumTerms), "sites": list}
COUNT = Number(0, 2**40)
CLASSES = Number(1, 2**20)
ROUND = Number(1, 2**31)
REAL = ("float32", "float64")
# buffers of a network may hold the −∞ of a mask, and counters are the integer buffers of any network
EXTRACTOR = ArrayGroup(
    {
        "parameters": ArrayType(FLOAT, ("P",)),
        "buffers": ArrayType(FLOAT, ("B",), finite=False),
        "counters": ArrayType(LONG, ("C",)),
    },
    complete=False,
)
MODEL = ArrayGroup(
    {
        "parameters": ArrayType(HALF, ("P",)),
        "buffers": ArrayType(HALF, ("B",), finite=False),
        "counters": ArrayType(LONG, ("C",)),
    },
    complete=False,
    needed=True,
)
STANDARDISATION = ArrayGroup(
    {"mean": ArrayType(FLOAT, ("H",)), "deviation": ArrayType(FLOAT, ("H",), low=TINY)},
)
_EMBEDDING = {"mean": ArrayType(FLOAT, ("H",)), "basis": ArrayType(FLOAT, ("H", "k"))}
PUBLIC: dict[str, Mapping[str, ArrayType]] = {  # by scorer
    "class-embedding": _EMBEDDING,
    "class-moments": {**_EMBEDDING, "split": ArrayType(FLOAT, (3,), low=0, high=1)},
    "mean-embedding": _EMBEDDING,
    "logistic": {
        "mean": ArrayType(FLOAT, ("H",)),
        "radius": ArrayType(FLOAT, (1,), low=TINY),
        "negatives": ArrayType(FLOAT, ("N", "H")),
    },
}
OWN_SCORER = {ANY_NAME: ArrayType((*REAL, "int64"), None)}
FIT = ArrayGroup({ANY_NAME: ArrayType(REAL, None)})
BROADCAST = ArrayGroup({ANY_NAME: ArrayType(FLOAT, None)})
BYTES = ArrayGroup({ANY_NAME: ArrayType(("uint8",), None)})  # by site
_SUM: dict[str, Rule | Choice] = {"sum": JsonObject(_TERMS, optional=True), "sealed": BYTES}


def _public(order: PrepareOrder) -> Rule:
    return ArrayGroup(PUBLIC.get(order.scorer, OWN_SCORER), needed=order.scorer in PUBLIC)


def _public_to_teach(order: TrainOrder) -> Rule:
    return ArrayGroup(PUBLIC.get(Teaching.from_json(order.teaching).scorer if order.teaching else "", OWN_SCORER))


FIELDS: dict[type, dict[str, Rule | Choice]] = {
    HelloOrder: {},
    SumOrder: {
        "client": NAME,
        "sum": JsonObject(_TERMS),
        "step": Text(choices=("keys", "shares", "survivors", "unmask")),
        "arrays": BYTES,
    },
    PrepareOrder: {
        "client": NAME,
        "prototype": SPEC,
        "scorer": NAME,
        "classes": CLASSES,
        "size": Number(1, 2**62),
        "h0": HASH,
        "known_entries": COUNT,
        "known_signature": HASH,
        "extractor": EXTRACTOR,
        "public": _public,
        **_SUM,
    },
    SumsOrder: {
        "client": NAME,
        "prototype": SPEC,
        "classes": CLASSES,
        "sends": Text(choices=("class-sums", "moments", "moments-per-class", "mixtures")),
        "width": Number(1, 2**20),
        "h0": HASH,
        "random_features": Number(0, MAX_RANDOM_FEATURES),
        "extractor": EXTRACTOR,
        "standardisation": STANDARDISATION,
        **_SUM,
    },
    TrainOrder: {
        "client": NAME,
        "round": ROUND,
        "prototype": SPEC,
        "classes": CLASSES,
        "method": NAME,
        "method_options": JsonObject(),
        "epochs": Number(1, 2**20),
        "batch_size": Number(1, 2**31),
        "optimizer": NAME,
        "lr": Number(1e-30, 1e30, whole=False),
        "momentum": Number(0, 1, whole=False),
        "weight_decay": Number(0, 1e30, whole=False),
        "mu": Number(0, 1e30, whole=False),
        "seed": Number(0, 2**63 - 1),
        "h0": HASH,
        "known_entries": COUNT,
        "known_signature": HASH,
        "run": NAME,
        "last_round": Number(0, 2**31),
        "weights": MODEL,
        "extractor": EXTRACTOR,
        "broadcast": BROADCAST,
        "teaching": TEACHING,
        "public": _public_to_teach,
        "fit": FIT,
        "client_fit": FIT,
        "standardisation": STANDARDISATION,
        "random_features": Number(0, MAX_RANDOM_FEATURES),
        "freeze_batch_norm": Flag(),
        **_SUM,
    },
}


def check_order(order: HelloOrder | PrepareOrder | SumsOrder | TrainOrder | SumOrder) -> None:
    """Raise an `OrderError` that names the first field which is not what the table says.

    Rows are read from the top: a row that depends on another field of the order stands below it.
    """
    for name, rule in FIELDS[type(order)].items():
        chosen = rule if isinstance(rule, Rule) else rule(order)
        problem = chosen.problem(getattr(order, name))
        if problem:
            raise OrderError(f"{type(order).__name__}.{name} must be {problem}")

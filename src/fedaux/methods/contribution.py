"""T2: every reply becomes a `Contribution`, and a round is the sum of them; sums of
contributions are contributions.

(Σ n·θ, Σ n) per prototype and (Σ s·f, Σ s) on D_distill are 64-bit integers in steps of
2^-bits. Integer addition is exactly associative and commutative, so any order of
arrival, a tree of aggregators or a secure sum modulo 2^64 gives the same bits as one
server reading replies in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedaux.core.arrays import Arrays, ArrayTree
from fedaux.core.io import temporary_array

# 1.5e-8 a step before the division by Σ n; room for Σ n·|θ| up to 7e10
WEIGHT_BITS = 26
# 1e-12 a step, well below the smallest teacher weight, room for Σ s·|f| up to 8e6
ENSEMBLE_BITS = 40
_BLOCK = 2**20

Reals = NDArray[np.floating]


class FixedSum:
    """Σ of real arrays in integer steps."""

    def __init__(self, shape: tuple[int, ...], bits: int) -> None:
        self.bits = bits
        self.steps: NDArray[np.int64] = temporary_array(shape, np.int64)

    @classmethod
    def from_steps(cls, steps: NDArray[np.int64], bits: int) -> Self:
        """Wrap a sum that was received. It is not copied, and must not be merged
        into.
        """
        total = cls((0,), bits)
        total.steps = steps
        return total

    @classmethod
    def of(cls, values: Reals, weight: float | Reals, bits: int) -> Self:
        """Multiply `values` by one weight, or one per row of at most 1; raise if not
        finite or far too large.
        """
        _check_term(values, float(weight) if np.ndim(weight) == 0 else 1.0, bits)
        scale = np.broadcast_to(weight, len(values)).reshape(
            -1, *[1] * (values.ndim - 1)
        )
        total = cls(values.shape, bits)
        for rows in total._blocks():
            block = np.asarray(values[rows], dtype=np.float64) * (
                scale[rows] * 2.0**bits
            )
            total.steps[rows] = np.rint(block, out=block)
        return total

    def merge(self, other: Self) -> None:
        """Add another sum. One that would pass 2^62 steps raises instead of
        wrapping.
        """
        for rows in self._blocks():
            self.steps[rows] += other.steps[rows]
            _check_room(self.steps[rows])

    def value(
        self, rows: slice | NDArray[np.int64] = slice(None)
    ) -> NDArray[np.float64]:
        return np.multiply(self.steps[rows], 2.0**-self.bits, dtype=np.float64)

    def _blocks(self) -> Iterator[slice]:
        """Yield blocks of rows, to save memory."""
        stride = max(1, _BLOCK // max(1, self.steps[:1].size))
        return (
            slice(start, start + stride) for start in range(0, len(self.steps), stride)
        )


@dataclass
class ModelSum:
    """Models of one prototype: parameters and float buffers are summed, integer
    counters take the maximum.

    `squares` (Σ n·θ²) is kept for FedBE only. It gives the diagonal Gaussian over the
    clients' weights.
    """

    sums: dict[str, FixedSum] = field(default_factory=dict)
    counters: Arrays = field(default_factory=dict)
    records: int = 0

    @classmethod
    def of(cls, weights: Arrays, records: int, second_moment: bool = False) -> Self:
        """Make the sum of one model, weighted by its number of records."""
        if records < 1:
            raise ValueError("an update must come from at least one record")
        terms: Arrays = {}
        counters: Arrays = {}
        for name, values in weights.items():
            is_float = np.issubdtype(values.dtype, np.floating)
            kind = terms if is_float else counters
            kind[name] = values
        if second_moment:
            terms["squares"] = np.square(weights["parameters"], dtype=np.float64)
        sums = {}
        for name, values in terms.items():
            sums[name] = FixedSum.of(values, records, WEIGHT_BITS)
        return cls(sums, counters, records)

    def merge(self, other: Self) -> None:
        for name, total in other.sums.items():
            if name not in self.sums:
                self.sums[name] = FixedSum(total.steps.shape, total.bits)
            self.sums[name].merge(total)
        for name, values in other.counters.items():
            self.counters[name] = np.maximum(self.counters.get(name, values), values)
        self.records += other.records

    def average(self) -> Arrays:
        """Σ n·θ / Σ n as float32, counters as they are."""
        average = {}
        for name, total in self.sums.items():
            if name == "squares":
                continue
            mean = total.value() / self.records
            average[name] = mean.astype(np.float32)
        return {**average, **self.counters}

    def gaussian_draws(self, count: int, rng: np.random.Generator) -> Iterable[Arrays]:
        """FedBE: models drawn from N(mean, diag var) over the clients' weights; buffers
        are the average's.
        """
        average = self.average()
        mean = self.sums["parameters"].value() / self.records
        variance = self.sums["squares"].value() / self.records - mean**2
        # rounding may leave less than nothing
        spread = np.sqrt(np.maximum(variance, 0.0))
        for _ in range(count):
            drawn = mean + spread * rng.standard_normal(mean.shape)
            yield {**average, "parameters": drawn.astype(np.float32)}


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Σ s·f and Σ s over D_distill: the certainty-weighted teacher of eq. 4, never held
    as probabilities.
    """

    logits: FixedSum  # (N, C)
    mass: FixedSum  # (N,)
    squares: FixedSum  # Σ s², (N,), to know how many teachers really count

    @classmethod
    def of(cls, logits: Reals, weights: Reals | None = None) -> Self:
        """One teacher, all of it or a ValueError. logits: (N, C), weights: (N,), in (0,
        1]. Without them, all 1.
        """
        if weights is None:
            weights = np.ones(len(logits))
        return cls(
            FixedSum.of(logits, weights, ENSEMBLE_BITS),
            _sum(weights),
            _sum(np.square(weights)),
        )

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        logits = FixedSum.from_steps(arrays["logits"], ENSEMBLE_BITS)
        mass = FixedSum.from_steps(arrays["mass"], ENSEMBLE_BITS)
        squares = FixedSum.from_steps(arrays["squares"], ENSEMBLE_BITS)
        return cls(logits, mass, squares)

    def to_arrays(self) -> Arrays:
        """Return the arrays to send: a client's part, or an aggregator's."""
        return {
            "logits": self.logits.steps,
            "mass": self.mass.steps,
            "squares": self.squares.steps,
        }

    @classmethod
    def empty(cls, size: int, classes: int) -> Self:
        logits = FixedSum((size, classes), ENSEMBLE_BITS)
        mass = FixedSum((size,), ENSEMBLE_BITS)
        squares = FixedSum((size,), ENSEMBLE_BITS)
        return cls(logits, mass, squares)

    def merge(self, other: Self) -> None:
        self.logits.merge(other.logits)
        self.mass.merge(other.mass)
        self.squares.merge(other.squares)

    def mean(
        self, rows: slice | NDArray[np.int64] = slice(None)
    ) -> NDArray[np.float64]:
        """Σ s·f / Σ s, (B, C)."""
        return self.logits.value(rows) / self.mass.value(rows)[:, None]

    def soft_labels(
        self, rows: slice | NDArray[np.int64] = slice(None)
    ) -> NDArray[np.float32]:
        """ỹ(x) = softmax(Σ s·f / Σ s), (B, C)."""
        return np.asarray(softmax(self.mean(rows), axis=1), dtype=np.float32)

    def effective_teachers(self) -> float:
        """Mean over D_distill of (Σ s)²/Σ s²: the number of clients if all count
        equally, 1 if one outweighs all.
        """
        step = 2.0**-self.squares.bits
        squares = np.maximum(self.squares.value(), step)
        teachers = np.square(self.mass.value()) / squares
        return float(np.mean(teachers))


@dataclass
class Contribution:
    """What one client, or any number of clients, adds to a round. An empty one is the
    zero of `merge`.
    """

    models: dict[str, ModelSum] = field(default_factory=dict)  # by prototype
    ensemble: Ensemble | None = None
    clients: int = 0
    teachers: int = 0

    @classmethod
    def of(
        cls,
        label: str,
        weights: Arrays,
        records: int,
        ensemble: Ensemble | None = None,
        *,
        second_moment: bool = False,
    ) -> Self:
        """Make one client's contribution, or raise a ValueError. `ensemble` is its
        part, None if it does not teach.
        """
        models = {label: ModelSum.of(weights, records, second_moment)}
        return cls(models, ensemble, clients=1, teachers=int(ensemble is not None))

    def merge(self, other: Self) -> None:
        for label, model in other.models.items():
            self.models.setdefault(label, ModelSum()).merge(model)
        if other.ensemble is not None:
            if self.ensemble is None:
                size, classes = other.ensemble.logits.steps.shape
                self.ensemble = Ensemble.empty(size, classes)
            self.ensemble.merge(other.ensemble)
        self.clients += other.clients
        self.teachers += other.teachers

    @classmethod
    def from_arrays(cls, rooms: ArrayTree) -> Self:
        """Read what `to_arrays` wrote. The result can be merged, but not merged
        into.
        """
        models = {}
        for label, steps in rooms["sums"].items():
            sums = {}
            for name, array in steps.items():
                sums[name] = FixedSum.from_steps(array, WEIGHT_BITS)
            records = int(rooms["records"][label]["count"])
            models[label] = ModelSum(sums, rooms["counters"][label], records)
        ensemble = None
        if "ensemble" in rooms:
            ensemble = Ensemble.from_arrays(rooms["ensemble"]["sums"])
        counts = {name: int(count) for name, count in rooms["counts"]["all"].items()}
        return cls(models, ensemble, **counts)

    def to_arrays(self) -> ArrayTree:
        """Return the arrays to send to another server, all integers."""
        sums = {}
        counters = {}
        records = {}
        for label, model in self.models.items():
            sums[label] = {name: total.steps for name, total in model.sums.items()}
            counters[label] = model.counters
            records[label] = {"count": np.array(model.records)}
        counts = {
            "clients": np.array(self.clients),
            "teachers": np.array(self.teachers),
        }
        arrays: ArrayTree = {
            "sums": sums,
            "counters": counters,
            "records": records,
            "counts": {"all": counts},
        }
        if self.ensemble is not None:
            arrays["ensemble"] = {"sums": self.ensemble.to_arrays()}
        return arrays

    def finish(self) -> tuple[dict[str, Arrays], Ensemble | None]:
        """Return each prototype's average, and the ensemble to distil, None without
        teachers.
        """
        averages = {label: model.average() for label, model in self.models.items()}
        return averages, self.ensemble


def check_logits(logits: Reals) -> None:
    """Raise the ValueError of a teacher whose logits are not finite or far too
    large.
    """
    _check_term(logits, 1.0, ENSEMBLE_BITS)


def _sum(weights: Reals) -> FixedSum:
    return FixedSum.of(weights, 1.0, ENSEMBLE_BITS)


def _check_term(values: Reals, weight: float, bits: int) -> None:
    highest = float(values.max(initial=0.0))
    lowest = float(values.min(initial=0.0))
    largest = max(highest, -lowest) * weight
    if not largest < 2.0 ** (58 - bits):  # also refuses NaN
        raise ValueError(
            f"a contribution of size {largest:.3g} is refused: not finite, or out of "
            "range"
        )


def _check_room(steps: NDArray[np.int64]) -> None:
    """Two numbers below 2^62 cannot wrap when added, so checking after every addition
    is early enough.
    """
    if not steps.size:
        return
    largest = max(int(steps.max()), -int(steps.min()))
    if largest >= 2**62:
        raise OverflowError(
            "the sum of the contributions is out of range. Use fewer records per "
            "round, or smaller weights."
        )

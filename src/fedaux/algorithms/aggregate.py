"""T2: every reply becomes a term of a few sums and is dropped; sums of sums are the same sums.

(Σ n·θ, Σ n) per prototype and (Σ s·f, Σ s) on D_distill are 64-bit integers in steps of 2^-bits. Integer addition is
exactly associative and commutative, so any order of arrival, a tree of aggregators or a secure sum modulo 2^64 gives
the same bits as one server reading replies in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedaux.core.io import temporary_array
from fedaux.core.messages import Arrays

WEIGHT_BITS = 26  # 1.5e-8 a step before the division by Σ n; room for Σ n·|θ| up to 7e10
ENSEMBLE_BITS = 40  # 1e-12 a step, well below the smallest teacher weight, room for Σ s·|f| up to 8e6
_BLOCK = 2**20

Reals = NDArray[np.floating]


class FixedSum:
    """Σ of real arrays in integer steps.

    A term that is not finite or far too large is refused before it changes anything; a sum beyond 2^62 steps raises.
    """

    def __init__(self, shape: tuple[int, ...], bits: int) -> None:
        self.bits = bits
        self.steps: NDArray[np.int64] = temporary_array(shape, np.int64)

    def add(self, values: Reals, weight: float | Reals = 1.0) -> None:
        """Add `values` times one weight, or one weight per row of at most 1; block by block to spare memory."""
        _check_term(values, weight if isinstance(weight, float | int) else 1.0, self.bits)
        stride = max(1, _BLOCK // max(1, self.steps[:1].size))
        for start in range(0, len(self.steps), stride):
            rows = slice(start, start + stride)
            share = weight if isinstance(weight, float | int) else weight[rows].reshape(-1, *[1] * (values.ndim - 1))
            block = np.asarray(values[rows], dtype=np.float64) * (share * 2.0**self.bits)
            self.steps[rows] += np.rint(block, out=block).astype(np.int64)
            _check_room(self.steps[rows])

    def merge(self, other: FixedSum) -> None:
        self.steps += other.steps
        _check_room(self.steps)

    def value(self, rows: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float64]:
        return np.multiply(self.steps[rows], 2.0**-self.bits, dtype=np.float64)


@dataclass
class Tally:
    """The running average of one prototype: parameters and float buffers are summed, integer counters take the maximum.

    `squares` (Σ n·θ²) is kept for FedBE only; it gives the diagonal Gaussian over the clients' weights.
    """

    sums: dict[str, FixedSum] = field(default_factory=dict)
    counters: Arrays = field(default_factory=dict)
    records: int = 0

    def check(self, weights: Arrays, records: int, second_moment: bool = False) -> None:
        """Refuse an update that cannot be added, before anything is changed."""
        if records < 1:
            raise ValueError("an update must stand for at least one record")
        for values in _terms(weights, second_moment).values():
            _check_term(values, records, WEIGHT_BITS)

    def add(self, weights: Arrays, records: int, second_moment: bool = False) -> None:
        self.check(weights, records, second_moment)
        terms = _terms(weights, second_moment)
        for name, values in terms.items():
            self.sums.setdefault(name, FixedSum(values.shape, WEIGHT_BITS)).add(values, records)
        for name in weights.keys() - terms.keys():
            self.counters[name] = np.maximum(self.counters.get(name, weights[name]), weights[name])
        self.records += records

    def merge(self, other: Self) -> None:
        for name, total in other.sums.items():
            self.sums.setdefault(name, FixedSum(total.steps.shape, total.bits)).merge(total)
        for name, values in other.counters.items():
            self.counters[name] = np.maximum(self.counters.get(name, values), values)
        self.records += other.records

    def average(self) -> Arrays:
        """Σ n·θ / Σ n as float32, counters as they are."""
        means = {
            name: (total.value() / self.records).astype(np.float32)
            for name, total in self.sums.items()
            if name != "squares"
        }
        return {**means, **self.counters}

    def gaussian_draws(self, count: int, rng: np.random.Generator) -> Iterable[Arrays]:
        """FedBE: models drawn from N(mean, diag var) over the clients' weights; buffers are those of the average."""
        average = self.average()
        mean = self.sums["parameters"].value() / self.records
        spread = np.sqrt(np.maximum(self.sums["squares"].value() / self.records - mean**2, 0.0))
        for _ in range(count):
            drawn = mean + spread * rng.standard_normal(mean.shape)
            yield {**average, "parameters": drawn.astype(np.float32)}


class Ensemble:
    """Σ s·f and Σ s over D_distill: the certainty-weighted teacher of eq. 4, never held as probabilities."""

    def __init__(self, size: int, classes: int) -> None:
        self.logits = FixedSum((size, classes), ENSEMBLE_BITS)
        self.mass = FixedSum((size,), ENSEMBLE_BITS)
        self.squares = FixedSum((size,), ENSEMBLE_BITS)  # Σ s², to know how many teachers really speak

    def add(self, logits: Reals, weights: Reals) -> None:
        """One teacher, all of it or a ValueError. logits: (N, C); weights: (N,), in (0, 1]."""
        self.logits.add(logits, weights)
        self.mass.add(weights)
        self.squares.add(np.square(weights))

    def merge(self, other: Ensemble) -> None:
        self.logits.merge(other.logits)
        self.mass.merge(other.mass)
        self.squares.merge(other.squares)

    def soft_labels(self, rows: slice | NDArray[np.int64] = slice(None)) -> NDArray[np.float32]:
        """ỹ(x) = softmax(Σ s·f / Σ s), (B, C)."""
        mean = self.logits.value(rows) / self.mass.value(rows)[:, None]
        return np.asarray(softmax(mean, axis=1), dtype=np.float32)

    @property
    def taught(self) -> bool:
        return bool(self.mass.steps.any())

    def effective_teachers(self) -> float:
        """Mean over D_distill of (Σ s)²/Σ s²: the number of clients if all count alike, 1 if one speaks for all."""
        return float(np.mean(np.square(self.mass.value()) / np.maximum(self.squares.value(), 2.0**-self.squares.bits)))


def _terms(weights: Arrays, second_moment: bool) -> Arrays:
    """What is summed: the floating arrays, and for FedBE the squared parameters."""
    terms = {name: values for name, values in weights.items() if np.issubdtype(values.dtype, np.floating)}
    return {**terms, "squares": np.square(weights["parameters"], dtype=np.float64)} if second_moment else terms


def _check_term(values: Reals, weight: float, bits: int) -> None:
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))) * weight
    if not largest < 2.0 ** (58 - bits):  # also refuses NaN
        raise ValueError(f"a contribution of size {largest:.3g} is refused: not finite, or out of range")


def _check_room(steps: NDArray[np.int64]) -> None:
    """Two numbers below 2^62 cannot wrap when added, so checking after every addition is early enough."""
    if steps.size and max(int(steps.max()), -int(steps.min())) >= 2**62:
        raise OverflowError("the sum of the contributions is out of range; fewer records per round, or smaller weights")

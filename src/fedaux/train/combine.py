"""T2: every reply becomes a term of a few sums and is dropped; sums of sums are the same sums.

(Σ n·θ, Σ n) per prototype and (Σ s·f, Σ s) on D_distill are 64-bit integers in steps of 2^-bits. Integer addition is
exactly associative and commutative, so any order of arrival, a tree of aggregators or a secure sum modulo 2^64 gives
the same bits as one server reading replies in turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedaux.exchange import Arrays

WEIGHT_BITS = 26  # 1.5e-8 a step before the division by Σ n; room for Σ n·|θ| up to 7e10
ENSEMBLE_BITS = 40  # 1e-12 a step, well below the smallest teacher weight, room for Σ s·|f| up to 8e6
IN_MEMORY = 2**31  # bytes; a larger ensemble is mapped to a temporary file
_BLOCK = 2**20

Reals = NDArray[np.floating]


class FixedSum:
    """Σ of real arrays in integer steps.

    A term that is not finite or far too large is refused before it changes anything; a sum beyond 2^62 steps raises.
    """

    def __init__(self, shape: tuple[int, ...], bits: int) -> None:
        self.bits = bits
        self.steps: NDArray[np.int64] = _zeros(shape)

    def add(self, values: Reals, weight: float = 1.0, rows: slice = slice(None)) -> None:
        """Add `weight * values` to the given rows, block by block to spare memory."""
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))) * weight
        if not largest < 2.0 ** (58 - self.bits):  # also refuses NaN
            raise ValueError(f"a contribution of size {largest:.3g} is refused: not finite, or out of range")
        into = self.steps[rows]
        stride = max(1, _BLOCK // max(1, into[:1].size))
        for start in range(0, len(into), stride):
            block = np.asarray(values[start : start + stride], dtype=np.float64) * (weight * 2.0**self.bits)
            into[start : start + stride] += np.rint(block, out=block).astype(np.int64)
            _check_room(into[start : start + stride])

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
    squares: FixedSum | None = None
    counters: Arrays = field(default_factory=dict)
    records: int = 0

    def add(self, weights: Arrays, records: int, second_moment: bool = False) -> None:
        if records < 1:
            raise ValueError("an update must stand for at least one record")
        for name, values in weights.items():
            if np.issubdtype(values.dtype, np.integer):
                self.counters[name] = np.maximum(self.counters.get(name, values), values)
                continue
            if name not in self.sums:
                self.sums[name] = FixedSum(values.shape, WEIGHT_BITS)
            self.sums[name].add(values, records)
        if second_moment:
            self.squares = self.squares or FixedSum(weights["parameters"].shape, WEIGHT_BITS)
            self.squares.add(np.square(weights["parameters"], dtype=np.float64), records)
        self.records += records

    def merge(self, other: Self) -> None:
        for name, total in other.sums.items():
            self.sums.setdefault(name, FixedSum(total.steps.shape, total.bits)).merge(total)
        for name, values in other.counters.items():
            self.counters[name] = np.maximum(self.counters.get(name, values), values)
        if other.squares is not None:
            self.squares = self.squares or FixedSum(other.squares.steps.shape, WEIGHT_BITS)
            self.squares.merge(other.squares)
        self.records += other.records

    def average(self) -> Arrays:
        """Σ n·θ / Σ n as float32, counters as they are."""
        means = {name: (total.value() / self.records).astype(np.float32) for name, total in self.sums.items()}
        return {**means, **self.counters}

    def gaussian_draws(self, count: int, rng: np.random.Generator) -> Iterable[Arrays]:
        """FedBE: models drawn from N(mean, diag var) over the clients' weights; buffers are those of the average."""
        if self.squares is None:
            raise ValueError("no second moments were kept; add updates with second_moment=True")
        average = self.average()
        mean = self.sums["parameters"].value() / self.records
        spread = np.sqrt(np.maximum(self.squares.value() / self.records - mean**2, 0.0))
        for _ in range(count):
            drawn = mean + spread * rng.standard_normal(mean.shape)
            yield {**average, "parameters": drawn.astype(np.float32)}


class Ensemble:
    """Σ s·f and Σ s over D_distill: the certainty-weighted teacher of eq. 4, never held as probabilities."""

    def __init__(self, size: int, classes: int) -> None:
        self.logits = FixedSum((size, classes), ENSEMBLE_BITS)
        self.mass = FixedSum((size,), ENSEMBLE_BITS)
        self.squares = FixedSum((size,), ENSEMBLE_BITS)  # Σ s², to know how many teachers really speak

    def add(self, logits: Reals, weights: Reals, rows: slice) -> None:
        """One teacher on one block of D_distill. logits: (B, C); weights: (B,), in (0, 1]."""
        self.logits.add(np.asarray(weights, np.float64)[:, None] * logits, rows=rows)
        self.mass.add(weights, rows=rows)
        self.squares.add(np.square(weights), rows=rows)

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


def _check_room(steps: NDArray[np.int64]) -> None:
    """Two numbers below 2^62 cannot wrap when added, so checking after every addition is early enough."""
    if steps.size and max(int(steps.max()), -int(steps.min())) >= 2**62:
        raise OverflowError("the sum of the contributions is out of range; fewer records per round, or smaller weights")


def _zeros(shape: tuple[int, ...]) -> NDArray[np.int64]:
    if int(np.prod(shape)) * 8 <= IN_MEMORY:
        return np.zeros(shape, dtype=np.int64)
    with tempfile.NamedTemporaryFile(prefix="fedaux-") as file:  # the map keeps the unlinked file alive
        return np.memmap(file, dtype=np.int64, mode="w+", shape=shape)

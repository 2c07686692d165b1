"""P2: the `Scorer` protocol: private summaries of client data, and from them log-odds of public examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedaux.core.messages import Arrays, OrderError, Release
from fedaux.privacy.mechanism import Bounds, Summary

Features = NDArray[np.floating]
Labels = NDArray[np.int64]
Vector = NDArray[np.float64]
Shares = Vector
Transform = Callable[[Features], Features]  # (B, k) → (B, m)
LogOdds = Callable[[Features], Vector]  # rows after `Fitted.transform`, (B, m) → log D_i(x)/D⁻(x), (B,)


@dataclass(frozen=True, eq=False)
class Reference:
    """φ(D⁻), (|D⁻|, k), with its moments computed once however many clients are compared with it."""

    rows: Vector

    @cached_property
    def mean(self) -> Vector:
        return np.asarray(self.rows.mean(axis=0))

    @cached_property
    def covariance(self) -> Vector:
        return np.cov(self.rows, rowvar=False).reshape(len(self.mean), -1)


@dataclass(frozen=True)
class Fitted:
    """Every client's log-odds, as functions of the rows that `transform` makes of φ(x), (B, k) → (B, m)."""

    log_odds: Mapping[str, LogOdds]
    transform: Transform | None = None  # the same for all clients; None: φ(x) itself
    mixtures: Mapping[str, Vector] | None = None  # of clients whose odds are Σ_c a_c e^{row_c}: their a ≥ 0, (m,)


Fit = tuple[Arrays, dict[str, Arrays]]  # what all clients of a cohort share, and what is each client's own


class Scorer(Protocol):
    """`publish` and `fit` run on the server and see public data and releases only; `summarise` runs on the client.

    A scorer that can bound the norm of an honest summary also has a method `bound`, see `bound_function`.
    """

    @property
    def name(self) -> str: ...

    def publish(self, negatives: Features) -> Arrays:
        """From features of D⁻, (|D⁻|, H): what every client needs to know."""
        ...

    def size(self, public: Arrays) -> int:
        """How many integers a release has."""
        ...

    def embed(self, public: Arrays, features: Features) -> Features:
        """φ: (B, H) → (B, k), each row by itself and of norm at most 1."""
        ...

    def summarise(
        self, public: Arrays, features: Features, labels: Labels, adjacency: str, size: int, shares: Shares
    ) -> Summary:
        """From features of D_i, (|D_i|, H), and their labels: the integers to release and their sensitivity.

        The privacy unit is a record or a person (`privacy/units.py`), and the sensitivity is that of one unit. `shares`
        is each record's weight within its unit: shares add up to at most 1 over a unit, and are all 1 where a unit is a
        record. `size` is the public number of units. Under replace-one it is counted; under add-remove it is a declared
        constant, the same for neighbours, and nothing may be divided by the number of rows instead. What a record adds
        must be a function of its own row to the bit: no matrix products over rows (`privacy/per_record.py` says why),
        but `project`, `clip_rows`, `unit_rows`, `quantize`.
        """
        ...

    def fit(self, public: Arrays, reference: Reference, releases: Sequence[Release]) -> Fitted:
        """From φ(D⁻) and the releases of a cohort: each client's log-odds on any embedded row."""
        ...


@runtime_checkable
class PortableScorer(Scorer, Protocol):
    """A scorer that can be sent as arrays: clients can weight themselves with them."""

    def fit_arrays(self, public: Arrays, reference: Reference, releases: Sequence[Release]) -> Fit: ...

    def from_arrays(self, shared: Arrays, own: Mapping[str, Arrays]) -> Fitted:
        """For the clients whose own arrays are given."""
        ...

    def fit(self, public: Arrays, reference: Reference, releases: Sequence[Release]) -> Fitted:
        return self.from_arrays(*self.fit_arrays(public, reference, releases))


def bound_function(scorer: Scorer) -> Bounds | None:
    """The scorer's `bound(public, adjacency, size)`. Without one, the norm of its releases is not checked."""
    function: Bounds | None = getattr(scorer, "bound", None)
    return function


def check_shapes(public: Arrays, **expected: tuple[int, ...]) -> None:
    """Refuse public arrays of another shape: broadcasting them could let one record change another's row."""
    for name, shape in expected.items():
        if public[name].shape != shape:
            raise OrderError(f"the public array {name!r} has shape {public[name].shape}, not {shape}")

"""P2: the protocols of scorers: private summaries of client data, and from them
log-odds of public examples.

Here is what a server does, with public data and releases. Built-in scorers summarise
private records in `client.summaries`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedaux.core.arrays import Arrays, Vector
from fedaux.core.failures import OrderError
from fedaux.messages import Release
from fedaux.privacy.mechanism import Bounds, Summary

Features = NDArray[np.floating]
Labels = NDArray[np.int64]
Shares = Vector
Transform = Callable[[Features], Features]  # (B, k) → (B, m)
# rows after `Fitted.transform`, (B, m) → log D_i(x)/D⁻(x), (B,)
LogOdds = Callable[[Features], Vector]


@dataclass(frozen=True, eq=False)
class Reference:
    """φ(D⁻), (|D⁻|, k), with its moments, which are computed once for all clients."""

    rows: Vector

    @cached_property
    def mean(self) -> Vector:
        return np.asarray(self.rows.mean(axis=0))

    @cached_property
    def covariance(self) -> Vector:
        return np.cov(self.rows, rowvar=False).reshape(len(self.mean), -1)


@dataclass(frozen=True)
class Fitted:
    """The log-odds of every client, as functions of the rows `transform(φ(x))`, (B, k)
    → (B, m).
    """

    log_odds: Mapping[str, LogOdds]  # by client, a function of such rows
    transform: Transform | None = None  # the same for all clients; None: φ(x) itself
    # of clients whose odds are Σ_c a_c e^{row_c}: their a ≥ 0, (m,)
    mixtures: Mapping[str, Vector] | None = None


# what all clients of a cohort share, and what is each client's own
Fit = tuple[Arrays, dict[str, Arrays]]


class PublicScorer(Protocol):
    """The half of a scorer that sees only public data and releases.

    A scorer that can bound the norm of an honest summary also has a method `bound`, see
    `bound_function`.
    """

    @property
    def name(self) -> str: ...

    def publish(self, negatives: Features) -> Arrays:
        """Compute what every client needs to know.

        Args:
            negatives: Features of D⁻, (|D⁻|, H).

        Returns:
            Public arrays by name, which are sent to all clients.
        """
        ...

    def size(self, public: Arrays) -> int:
        """Return the number of integers in a release.

        Args:
            public: The arrays of `publish`.

        Returns:
            The length of `Summary.values`.
        """
        ...

    def embed(self, public: Arrays, features: Features) -> Features:
        """Compute φ, (B, H) → (B, k), of each row separately.

        Args:
            public: The arrays of `publish`.
            features: Features of records, (B, H).

        Returns:
            Embedded rows, (B, k), of norm at most 1.
        """
        ...

    def fit(
        self, public: Arrays, reference: Reference, releases: Sequence[Release]
    ) -> Fitted:
        """Compute each client's log-odds on any embedded row.

        Args:
            public: The arrays of `publish`.
            reference: φ(D⁻), with its moments.
            releases: The releases of a cohort of clients.

        Returns:
            The log-odds of every client.
        """
        ...


class Scorer(PublicScorer, Protocol):
    """The interface of a scorer that you write. It estimates how much a public example
    resembles a client's data.

    `publish` and `fit` run on the server and see only public data and releases.
    `summarise` runs on the client. A scorer that can bound the norm of an honest
    summary also has a method `bound`, see `bound_function`.
    """

    def summarise(
        self,
        public: Arrays,
        features: Features,
        labels: Labels,
        adjacency: str,
        size: int,
        shares: Shares,
    ) -> Summary:
        """Summarise a client's records as the integers to release, with their
        sensitivity to one privacy unit.

        The privacy unit is a record or a person (`privacy/units.py`). What a record
        adds must be a function of its own row, bit for bit: use `project`, `clip_rows`,
        `unit_rows` and `quantize`, not matrix products over rows
        (`privacy/per_record.py` says why).

        Args:
            public: The arrays of `publish`.
            features: Features of the client's records, (|D_i|, H).
            labels: Their labels, (|D_i|,).
            adjacency: What makes data sets neighbours: replace-one or add-remove.
            size: The public number of units: counted under replace-one. Under
                add-remove a declared constant, the same for neighbours. Never divide by
                the number of rows instead.
            shares: Each record's weight within its unit: at most 1 in total over a
                unit, 1 if a unit is a record.

        Returns:
            The summary, to which noise is added before it is sent.
        """
        ...


@runtime_checkable
class PortableScorer(PublicScorer, Protocol):
    """A scorer whose fit can be sent as arrays, so that clients can compute their own
    weights.
    """

    def fit_arrays(
        self, public: Arrays, reference: Reference, releases: Sequence[Release]
    ) -> Fit: ...

    def from_arrays(self, shared: Arrays, own: Mapping[str, Arrays]) -> Fitted:
        """Rebuild the fit of the clients whose own arrays are given."""
        ...

    def fit(
        self, public: Arrays, reference: Reference, releases: Sequence[Release]
    ) -> Fitted:
        return self.from_arrays(*self.fit_arrays(public, reference, releases))


def bound_function(scorer: PublicScorer) -> Bounds | None:
    """Return the scorer's `bound(public, adjacency, size)`, or None: the norm of its
    releases is then not checked.
    """
    function: Bounds | None = getattr(scorer, "bound", None)
    return function


def check_shapes(public: Arrays, **expected: tuple[int, ...]) -> None:
    """Refuse public arrays of another shape: broadcasting them could let one record
    change another's row.

    Args:
        public: The arrays that the server sent.
        expected: The shape of each array, by its name.
    """
    for name, shape in expected.items():
        if public[name].shape != shape:
            raise OrderError(
                f"Cannot make a release: the public array {name!r} has shape "
                f"{public[name].shape}, not {shape}. Install the same version of "
                "fedaux at the server and the sites."
            )

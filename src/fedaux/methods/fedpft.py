"""FedPFT (Beitollahi et al. 2024): clients send a Gaussian mixture of the features of
each class, the server draws.

A client fits `components` Gaussians with diagonal covariances to the features of each
of its classes and sends them, once, without noise. The server draws features of every
class from the mixtures of all clients, in proportion to the records behind them, and
trains a linear head on them. Unlike sums, mixtures are kept side by side: the server's
state grows with the number of clients. With as many components as records, the means
are the records' features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from fedaux.config.parsing import require
from fedaux.core.arrays import Arrays
from fedaux.core.rng import derive_seed, numpy_stream
from fedaux.messages.replies import MOST_COMPONENTS
from fedaux.methods.analytic_heads import AnalyticHead, Head, PublicCovariance
from fedaux.methods.gaussian_head import train_head, with_prior

if TYPE_CHECKING:
    from fedaux.data.records import Records
    from fedaux.models import HeadFeatures

FLOOR = 1e-3  # least variance of a standardised feature
ITERATIONS = 50  # of expectation maximisation, at most


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Gaussians with diagonal covariances, M of all classes, of any number of
    clients.
    """

    # records behind each Gaussian, in the column of its class, (M, C)
    counts: NDArray[np.float32]
    means: NDArray[np.float32]  # (M, D)
    variances: NDArray[np.float32]  # (M, D)

    @classmethod
    def of(
        cls,
        psi: NDArray[np.floating],
        labels: NDArray[np.int64],
        classes: int,
        components: int,
    ) -> Self:
        """Fit at most `components` Gaussians to the rows of each class."""
        fitted = [
            (count * np.eye(classes)[label], mean, variances)
            for label in np.unique(labels)
            for count, mean, variances in _fit(
                psi[labels == label].astype(np.float64), components
            )
        ]
        return cls(
            *(
                np.array(values, dtype=np.float32)
                for values in zip(*fitted, strict=True)
            )
        )

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        return cls(**arrays)

    def to_arrays(self) -> Arrays:
        return dict(vars(self))

    def __add__(self, other: Self) -> Self:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(np.concatenate(pair) for pair in pairs))

    def value(self) -> Self:
        return self


@dataclass(frozen=True)
class FedPFT(AnalyticHead):
    components: int = 1  # Gaussians that a client fits to each of its classes
    samples: int = 1000  # drawn of each class
    epochs: int = 10
    lr: float = 1e-3  # Adam's

    def __post_init__(self) -> None:
        require(
            1 <= self.components <= MOST_COMPONENTS,
            (
                f"method_options.components must lie from 1 to {MOST_COMPONENTS}, and "
                f"is {self.components}."
            ),
        )
        require(
            min(self.samples, self.epochs) >= 1,
            "method_options.samples and epochs must be 1 or more.",
        )
        require(
            self.lr > 0, f"method_options.lr must be greater than 0, and is {self.lr}."
        )

    def summarise(
        self, features: HeadFeatures, records: Records, classes: int, sends: str
    ) -> Mixtures:
        import torch

        with torch.inference_mode():
            psi = np.concatenate(
                [features(records.batch(rows)).numpy() for rows in records.blocks(2048)]
            )
        return Mixtures.of(psi, records.labels, classes, self.components)

    def read(self, arrays: Arrays) -> Mixtures:
        return Mixtures.from_arrays(arrays)

    def head(self, sums: Mixtures, covariance: PublicCovariance) -> Head:
        rng, drawn = numpy_stream(0, "synthetic-features"), list[NDArray[np.floating]]()
        per_class = sums.counts.sum(axis=0, dtype=np.float64)
        known = np.flatnonzero(per_class)
        for label in known:
            chosen = rng.choice(
                len(sums.counts),
                self.samples,
                p=sums.counts[:, label] / per_class[label],
            )
            noise = rng.standard_normal(
                (self.samples, sums.means.shape[1]), dtype=np.float32
            )
            drawn.append(sums.means[chosen] + np.sqrt(sums.variances[chosen]) * noise)
        labels = np.repeat(known, self.samples)
        return with_prior(
            train_head(
                np.concatenate(drawn), labels, len(per_class), self.epochs, self.lr
            ),
            per_class,
        )


def _fit(
    rows: NDArray[np.float64], components: int
) -> list[tuple[float, NDArray[np.float64], NDArray[np.float64]]]:
    """(records, mean, variances) of each Gaussian; there are at most as many as
    records.
    """
    if min(components, len(rows)) == 1:
        return [
            (float(len(rows)), rows.mean(axis=0), np.maximum(rows.var(axis=0), FLOOR))
        ]
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(
        min(components, len(rows)),
        covariance_type="diag",
        reg_covar=FLOOR,
        max_iter=ITERATIONS,
        tol=1e-2,
        random_state=derive_seed(0, "mixture") % 2**32,
    ).fit(rows)
    return list(
        zip(
            len(rows) * mixture.weights_,
            mixture.means_,
            mixture.covariances_,
            strict=True,
        )
    )

"""What releases become in a secure sum: one release of all clients, with noise that the
sites share.

A client computes the weights of its own model from that release and from its own
classes, which never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.core.errors import SettingsError
from fedaux.messages import Release
from fedaux.privacy.mechanism import Summary, as_release, noise_scale
from fedaux.scoring.base import PublicScorer

_POOLED = "pooled."


def shared_noise_scale(
    scorer: PublicScorer, public: Arrays, privacy: PrivacyConfig, honest: int
) -> float:
    """Return the scale, in steps, of each site's share of the noise, if `honest` sites
    surely add theirs.
    """
    bound = getattr(scorer, "bound", None)
    if bound is None or not getattr(scorer, "additive", False):
        raise SettingsError(
            f"Cannot add releases: those of the scorer {scorer.name!r} do not add up "
            "over clients. Set privacy.scorer to class-embedding or class-moments, or "
            "federation.secure to false."
        )
    return noise_scale(
        scorer.size(public),
        bound(public, privacy.adjacency, 1).sensitivity,
        privacy,
        honest,
    )


def pooled_release(
    scorer: PublicScorer,
    public: Arrays,
    privacy: PrivacyConfig,
    total: NDArray[np.int64],
    scale: float,
    name: str,
) -> Release:
    """Return the sum of releases as a release. Its records are those that its noisy
    counts add up to.
    """
    bound = scorer.bound(public, privacy.adjacency, 1)  # type: ignore[attr-defined]
    counts = scorer.counts(public, total * bound.step)  # type: ignore[attr-defined]
    records = max(1, round(float(counts.sum())))
    return as_release(
        Summary(total, bound.step, bound.sensitivity, privacy.adjacency, records),
        name,
        privacy,
        scale,
    )


@dataclass(frozen=True)
class PooledWeights:
    """What clients need to weight themselves: the pooled release, fitted, for each
    prototype.
    """

    teachers: frozenset[str]
    # by prototype: what all clients share, and the fit of the pooled release
    fits: Mapping[str, tuple[Arrays, Arrays]]
    label_of: Mapping[str, str]

    def broadcast(self, client: str) -> tuple[Arrays, Arrays]:
        """(what all clients of a prototype are sent, nothing for a client alone): sites
        of a sum are asked the same.
        """
        shared, pooled = self.fits[self.label_of[client]]
        return {
            **shared,
            **{f"{_POOLED}{name}": values for name, values in pooled.items()},
        }, {}


def split_fit(fit: Arrays) -> tuple[Arrays, Arrays]:
    """Split what `PooledWeights.broadcast` has joined: (what all clients share, the fit
    of the pooled release).
    """
    pooled = {
        name.removeprefix(_POOLED): values
        for name, values in fit.items()
        if name.startswith(_POOLED)
    }
    shared = {
        name: values for name, values in fit.items() if not name.startswith(_POOLED)
    }
    return shared, pooled

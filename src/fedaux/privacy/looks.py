"""The budget of a look, and its noise: one mechanism for all counts of an order."""

from __future__ import annotations

from dataclasses import replace

from fedaux.config.sections import PrivacyConfig
from fedaux.messages import Counts, LookOrder, Release, Tallies
from fedaux.privacy.mechanism import noise_scale


def look_budget(privacy: PrivacyConfig) -> PrivacyConfig:
    """Return the settings of a release at ε of a look."""
    return replace(privacy, epsilon=privacy.look_epsilon)


def look_scale(order: LookOrder, privacy: PrivacyConfig, honest: int = 1) -> float:
    """Return the scale, in steps, of the noise of a look, or of one site's share of it
    if `honest` sites add theirs.
    """
    return scale_of(Tallies.from_json(order.tallies), order.size, privacy, honest)


def scale_of(
    tallies: Tallies, size: int, privacy: PrivacyConfig, honest: int = 1
) -> float:
    """Return the same for tallies with `size` bins, before there is an order."""
    sensitivity = tallies.sensitivity(privacy.adjacency)
    return noise_scale(size, sensitivity, look_budget(privacy), honest)


def as_counts(noisy: Release) -> Counts:
    """Return noisy counts as the message to send."""
    return Counts(
        client=noisy.client,
        epsilon=noisy.epsilon,
        delta=noisy.delta,
        adjacency=noisy.adjacency,
        calibration=noisy.calibration,
        sensitivity=noisy.sensitivity,
        scale=noisy.scale,
        unsafe=noisy.unsafe,
        account="",  # the client's `BudgetStore` adds it
        arrays=noisy.arrays,
    )

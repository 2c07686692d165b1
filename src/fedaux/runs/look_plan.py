"""Predicts what a look would cost, and how wide the interval of accuracy would be,
before it is asked. Nothing is read.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from fedaux.config.schema import Config
from fedaux.config.sections import FederationConfig, PrivacyConfig
from fedaux.core.metrics import Z
from fedaux.core.noisy_counts import consistent
from fedaux.data.federated import class_names, client_names
from fedaux.privacy.accounting import release_mechanism, total_epsilon
from fedaux.privacy.looks import look_budget, scale_of
from fedaux.privacy.secure_sum import SecureSumError, agreed_threshold, honest_sites
from fedaux.server.data_look import tallies_to_count
from fedaux.server.site_test import tallies_of_test


@dataclass(frozen=True)
class LookPlan:
    """A prediction for a look at the held-out records of some sites.

    Attributes:
        records: How many records all sites hold out together.
        epsilon: ε of the look.
        total: ε of one release and the look together.
        accuracy: The accuracy that is assumed.
        sampling: The standard deviation of accuracy because the records are a sample.
        noise: The same because of the noise, in one secure sum of all sites; None if
            there are too few of them for one.
        noise_apart: The same if each site adds its own noise.
    """

    records: int
    epsilon: float
    total: float
    accuracy: float
    sampling: float
    noise: float | None
    noise_apart: float

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval of accuracy in a secure sum, if there can be one."""
        if self.noise is None:
            return None
        return Z * math.hypot(self.sampling, self.noise)

    @property
    def half_width_apart(self) -> float:
        """The same without secure sums."""
        return Z * math.hypot(self.sampling, self.noise_apart)


def noise_of_sum(sites: int, federation: FederationConfig) -> float:
    """Return the noise in a secure sum of all sites, as a multiple of that of one look.

    Each site adds so much that those which must be honest have all that is needed. The
    other sites' shares come on top of it.
    """
    threshold = agreed_threshold(sites, federation.threshold)
    return math.sqrt(sites / honest_sites(threshold, sites, federation.colluders))


def plan_look(
    records: int,
    sites: int,
    classes: int,
    privacy: PrivacyConfig,
    federation: FederationConfig,
    release_size: int,
    accuracy: float = 0.8,
) -> LookPlan:
    """Predict a look.

    Args:
        records: How many records all sites hold out together.
        sites: The number of sites.
        classes: The number of classes.
        privacy: The settings; `epsilon` is that of a release, `look_epsilon` that of
            the look.
        federation: The settings of a secure sum.
        release_size: How many numbers the release has.
        accuracy: The accuracy to assume.
    """
    tallies = tallies_of_test(classes)
    size = tallies.size(classes)
    # each tally counts the right answers in half of its bins, and all are combined
    precision = sum(
        2 * tally.steps**2 / tally.bins(classes) for tally in tallies.by_name.values()
    )
    deviation = scale_of(tallies, size, privacy) / math.sqrt(precision)
    # of right / (right + wrong), whose counts have independent noise
    noise = deviation * math.hypot(accuracy, 1 - accuracy) / records
    noise_of_all: float | None = None
    with suppress(SecureSumError):
        noise_of_all = noise * noise_of_sum(sites, federation)
    mechanisms = [
        release_mechanism(release_size, privacy),
        release_mechanism(size, look_budget(privacy)),
    ]
    return LookPlan(
        records=records,
        epsilon=privacy.look_epsilon,
        total=total_epsilon(mechanisms, privacy.delta, privacy.adjacency),
        accuracy=accuracy,
        sampling=math.sqrt(accuracy * (1 - accuracy) / records),
        noise=noise_of_all,
        noise_apart=math.sqrt(sites) * noise,
    )


@dataclass(frozen=True)
class DataLookPlan:
    """A prediction for a look at all records of all sites, before a run.

    Attributes:
        sites: The number of sites.
        columns: How many columns of a table are counted by.
        epsilon: ε of the look for each site.
        secure: Whether the sites' counts are one secure sum.
        half_width: Half of the 95 % interval of a class, and of a bin of a column.
        half_width_of_all: The same of the number of all records.
    """

    sites: int
    columns: int
    epsilon: float
    secure: bool
    half_width: float
    half_width_of_all: float


def plan_data_look(config: Config) -> DataLookPlan:
    """Predict a look at the data of a run with these settings."""
    tallies = tallies_to_count(config)
    classes = len(class_names(config))
    sites = len(client_names(config))
    scale = scale_of(tallies, tallies.size(classes), config.privacy)
    if config.federation.secure:
        scale *= noise_of_sum(sites, config.federation)
    else:
        scale *= math.sqrt(sites)
    nothing = {
        name: [0.0] * tally.bins(classes) for name, tally in tallies.by_name.items()
    }
    noise = {name: scale / tally.steps for name, tally in tallies.by_name.items()}
    records, bins = consistent(nothing, noise)
    return DataLookPlan(
        sites=sites,
        columns=len(tallies.columns),
        epsilon=config.privacy.look_epsilon,
        secure=config.federation.secure,
        half_width=max(count.half for counts in bins.values() for count in counts),
        half_width_of_all=records.half,
    )


def describe_data_plan(plan: DataLookPlan) -> str:
    """Return the prediction in words."""
    noise = "in one secure sum"
    if not plan.secure:
        noise = "each with noise of its own"
    return (
        f"A look at {plan.columns} columns and the classes costs each of {plan.sites} "
        f"sites ε = {plan.epsilon:g}. With the sites {noise}, the 95 % interval of a "
        f"count will be ± {plan.half_width:,.0f} records, and that of all records "
        f"± {plan.half_width_of_all:,.0f}. Nothing was counted."
    )

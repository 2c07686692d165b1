"""Predicts what a look would cost, and how wide the interval of accuracy would be,
before it is asked. Nothing is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedaux.config.sections import PrivacyConfig
from fedaux.core.metrics import Z
from fedaux.messages.tallies import OF_ANSWERS
from fedaux.privacy.accounting import release_mechanism, total_epsilon
from fedaux.privacy.looks import look_budget, scale_of
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
        noise: The same because of the noise, in one secure sum of all sites.
        noise_apart: The same if each site adds its own noise.
    """

    records: int
    epsilon: float
    total: float
    accuracy: float
    sampling: float
    noise: float
    noise_apart: float

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of accuracy in a secure sum."""
        return Z * math.hypot(self.sampling, self.noise)

    @property
    def half_width_apart(self) -> float:
        """The same without secure sums."""
        return Z * math.hypot(self.sampling, self.noise_apart)


def plan_look(
    records: int,
    sites: int,
    classes: int,
    privacy: PrivacyConfig,
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
        release_size: How many numbers the release has.
        accuracy: The accuracy to assume.
    """
    tallies = tallies_of_test(classes)
    size = tallies.size(classes)
    # a secure sum in which every site is honest has the noise of one look
    deviation = scale_of(tallies, size, privacy) / tallies.by_name[OF_ANSWERS].steps
    # of right / (right + wrong), whose counts have independent noise
    noise = deviation * math.hypot(accuracy, 1 - accuracy) / records
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
        noise=noise,
        noise_apart=math.sqrt(sites) * noise,
    )

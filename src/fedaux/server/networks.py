"""One resident network per prototype: teachers, students and tests pass through it in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from torch import nn

from fedaux.config.schema import Config
from fedaux.core.messages import Arrays
from fedaux.core.rng import derive_seed
from fedaux.models import HeadFeatures, Prototype, build, flatten_state, linear_head, load_state
from fedaux.models.compute import place_by_settings


@dataclass(frozen=True, eq=False)
class Learners:
    """By prototype: the networks, their extractors, and what of them is trained, averaged and distilled."""

    networks: Mapping[str, Prototype]  # whole, where this package has built them
    extractors: Mapping[str, nn.Module]
    trained: Mapping[str, nn.Module]  # the networks, or where only heads train, their heads

    @classmethod
    def build(cls, config: Config, shape: tuple[int, ...], classes: int) -> Self:
        """From the run's seed; with `head_only`, the heads alone are trained."""
        networks = {
            spec.label: place_by_settings(
                build(spec, shape, classes, derive_seed(config.seed, "init", spec.label)),
                config.device,
                config.precision,
                shape,
            )
            for spec in config.prototypes
        }
        learners = cls(networks, {label: network.features for label, network in networks.items()}, networks)
        if not config.head_only:
            return learners
        heads = {
            label: place_by_settings(
                linear_head(network.width, classes, config.random_features, derive_seed(config.seed, "init", label)),
                config.device,
                "float32",
            )
            for label, network in networks.items()
        }
        for label, head in heads.items() if not config.random_features else ():
            load_state(head.head, flatten_state(networks[label].head))
        return replace(learners, trained=heads)

    def standardise(self, label: str, statistics: Arrays) -> None:
        """Where heads are trained: of this prototype on features standardised with these statistics."""
        features = getattr(self.trained[label], "features", None)
        if isinstance(features, HeadFeatures):
            features.standardise(statistics)

    def loaded(self, label: str, weights: Arrays) -> nn.Module:
        """The learner of this prototype with these weights in it, until the next ones are loaded."""
        learner = self.trained[label]
        load_state(learner, weights)
        return learner

    def weights(self) -> dict[str, Arrays]:
        """A copy of what each learner has now."""
        return {label: flatten_state(learner) for label, learner in self.trained.items()}

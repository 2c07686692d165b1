"""One resident network per prototype: teachers, students and tests pass through it in
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import softmax
from torch import nn

from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.metrics import Evaluation
from fedaux.core.rng import derive_seed
from fedaux.data.records import Records
from fedaux.models import (
    HeadFeatures,
    Prototype,
    build,
    flatten_state,
    linear_head,
    load_state,
)
from fedaux.models.compute import place_by_settings
from fedaux.models.inference import predict_batches

MAX_SCORES = 2_000_000  # probabilities that are held for the area under the curve


@dataclass(frozen=True, eq=False)
class Networks:
    """The networks of all prototypes by label, their extractors, and the part that is
    trained and averaged.
    """

    whole: Mapping[str, Prototype]  # whole networks, where this package has built them
    extractors: Mapping[str, nn.Module]
    # the networks, or where only heads train, their heads
    trained: Mapping[str, nn.Module]

    @classmethod
    def build(cls, config: Config, shape: tuple[int, ...], classes: int) -> Self:
        """Build the networks from the run's seed; with `head_only`, only the heads are
        trained.
        """
        whole = {
            spec.label: place_by_settings(
                build(
                    spec, shape, classes, derive_seed(config.seed, "init", spec.label)
                ),
                config.device,
                config.precision,
                shape,
            )
            for spec in config.prototypes
        }
        networks = cls(
            whole, {label: network.features for label, network in whole.items()}, whole
        )
        if not config.head_only:
            return networks
        heads = {
            label: place_by_settings(
                linear_head(
                    network.width,
                    classes,
                    config.random_features,
                    derive_seed(config.seed, "init", label),
                ),
                config.device,
                "float32",
            )
            for label, network in whole.items()
        }
        for label, head in heads.items() if not config.random_features else ():
            load_state(head.head, flatten_state(whole[label].head))
        return replace(networks, trained=heads)

    def standardise(self, label: str, statistics: Arrays) -> None:
        """Standardise the features of this prototype's head with these statistics, if
        only heads are trained.
        """
        features = getattr(self.trained[label], "features", None)
        if isinstance(features, HeadFeatures):
            features.standardise(statistics)

    def loaded(self, label: str, weights: Arrays) -> nn.Module:
        """Load weights into the learner of a prototype and return it; they stay until
        the next call.
        """
        learner = self.trained[label]
        load_state(learner, weights)
        return learner

    def weights(self) -> dict[str, Arrays]:
        """Return a copy of the current weights of each learner."""
        return {
            label: flatten_state(learner) for label, learner in self.trained.items()
        }


def evaluate_classes(model: nn.Module, records: Records, classes: int) -> Evaluation:
    """Evaluate a model on labelled records, without the area under the curve if there
    are too many probabilities.
    """
    labels, counts, scores = records.labels, np.zeros(classes * classes, np.int64), []
    held = len(labels) * classes <= MAX_SCORES
    for rows, logits in predict_batches(model, records):
        counts += np.bincount(
            labels[rows] * classes + logits.argmax(axis=1), minlength=classes * classes
        )
        scores += [softmax(logits, axis=1)] if held else []
    table = counts.reshape(classes, classes)
    return Evaluation(
        table, Evaluation.of(np.concatenate(scores), labels).auc if scores else None
    )


def evaluations(
    networks: Networks,
    weights: dict[str, Arrays],
    inputs: Callable[[str], Records | None],
    classes: int,
) -> dict[str, Evaluation]:
    """Evaluate each prototype on its test records, if there are any. The results never
    influence training.
    """
    tests = {label: inputs(label) for label in weights}
    return {
        label: evaluate_classes(
            networks.loaded(label, weights[label]), records, classes
        )
        for label, records in tests.items()
        if records is not None
    }

"""One resident network per prototype: teachers, students and tests pass through it in
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
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

MAX_SCORES = 2_000_000  # probabilities that are held for figures such as the AUC


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
        """Build the networks from the run's seed. With `head_only`, only the heads are
        trained.
        """
        whole: dict[str, Prototype] = {}
        for spec in config.prototypes:
            seed = derive_seed(config.seed, "init", spec.label)
            network = build(spec, shape, classes, seed)
            whole[spec.label] = place_by_settings(
                network, config.device, config.precision, shape
            )
        extractors = {label: network.features for label, network in whole.items()}
        if not config.head_only:
            return cls(whole, extractors, whole)
        heads: dict[str, nn.Module] = {}
        for label, network in whole.items():
            heads[label] = _head_of(network, label, config, classes)
        return cls(whole, extractors, heads)

    def standardise(self, label: str, statistics: Arrays) -> None:
        """Standardise the features of this prototype's head with these statistics, if
        only heads are trained.
        """
        features = getattr(self.trained[label], "features", None)
        if isinstance(features, HeadFeatures):
            features.standardise(statistics)

    def loaded(self, label: str, weights: Arrays) -> nn.Module:
        """Load weights into the learner of a prototype and return it. They stay until
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


def _head_of(network: Prototype, label: str, config: Config, classes: int) -> Prototype:
    """Return the head that is trained alone. On the network's own features it starts as
    the network's head does.
    """
    head = linear_head(
        network.width,
        classes,
        config.random_features,
        derive_seed(config.seed, "init", label),
    )
    head = place_by_settings(head, config.device, "float32")
    if not config.random_features:
        load_state(head.head, flatten_state(network.head))
    return head


def evaluate_classes(model: nn.Module, records: Records, classes: int) -> Evaluation:
    """Evaluate a model on labelled records, without the figures of probabilities if
    there are too many of them.
    """
    labels = records.labels
    with_scores = len(labels) * classes <= MAX_SCORES
    counts = np.zeros(classes * classes, np.int64)
    scores: list[NDArray[np.floating]] = []
    for rows, logits in predict_batches(model, records):
        cells = labels[rows] * classes + logits.argmax(axis=1)
        counts += np.bincount(cells, minlength=len(counts))
        if with_scores:
            scores.append(softmax(logits, axis=1))
    table = counts.reshape(classes, classes)
    if not scores:
        return Evaluation(table)
    return replace(Evaluation.of(np.concatenate(scores), labels), table=table)


def calibrations(tests: Mapping[str, Evaluation]) -> dict[str, list[list[float]]]:
    """The calibration curve of each prototype, as rows."""
    return {
        label: test.calibration.to_rows()
        for label, test in tests.items()
        if test.calibration is not None
    }


def evaluations(
    networks: Networks,
    weights: dict[str, Arrays],
    inputs: Callable[[str], Records | None],
    classes: int,
) -> dict[str, Evaluation]:
    """Evaluate each prototype on its test records, if there are any. The results never
    influence training.
    """
    tests: dict[str, Evaluation] = {}
    for label, arrays in weights.items():
        records = inputs(label)
        if records is not None:
            model = networks.loaded(label, arrays)
            tests[label] = evaluate_classes(model, records, classes)
    return tests

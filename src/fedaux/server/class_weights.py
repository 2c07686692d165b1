"""How much a record of each class counts, in heads that are computed and in local
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from fedaux.config.parsing import require
from fedaux.config.schema import BALANCED, Config
from fedaux.core.arrays import Vector
from fedaux.messages import Release
from fedaux.methods.analytic_heads import FeatureSums
from fedaux.scoring.base import PublicScorer
from fedaux.scoring.embedding import ClassEmbeddingScorer, balanced_weights
from fedaux.server.run_state import RunState


def class_weights(
    config: Config,
    classes: int,
    scorer: PublicScorer,
    state: RunState,
    label: str,
    releases: Sequence[Release],
) -> Vector:
    """Return the weight of each class, (C,), of `config.class_weights`.

    Balanced weights follow from what the server has been sent already: the noisy counts
    of releases, which costs no privacy, or the counts of exact sums, and never from
    counts that are asked for this.

    Args:
        config: The settings of the run.
        classes: The number of classes.
        scorer: Reads the releases.
        state: The state of the run.
        label: The prototype for which the weights are.
        releases: Those of its clients, or the one of their secure sum.
    """
    if config.class_weights == BALANCED:
        if releases:
            counting = cast(ClassEmbeddingScorer, scorer)
            return counting.balanced(state.public[label], releases)
        if label in state.sums:
            counts = FeatureSums.from_arrays(state.sums[label]).value().counts
            return balanced_weights(counts)
        return np.ones(classes)
    if not config.class_weights:
        return np.ones(classes)
    weights = np.array(config.class_weights, np.float64)
    require(
        len(weights) == classes,
        f"Cannot use these settings: class_weights has {len(weights)} numbers, and "
        f"there are {classes} classes. Write one for each, in the order of "
        "data.classes.",
    )
    return weights

"""Whether the public features are of another kind than a client's own, which costs a
private head much of its accuracy.

A client looks before it spends anything, and tells its owner alone: in its own log, and
nowhere in a reply.

φ is a direction, centred on public features. Of records of the public kind the mean
direction is short. Records of another kind all point the same way, so their classes are
hard to tell apart from far away. A client of few classes has a longer mean too, which
the limit allows for.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaux.core.arrays import Arrays, Vector
from fedaux.data.records import Records
from fedaux.messages import PrepareOrder
from fedaux.privacy.mechanism import unit_rows
from fedaux.scoring.base import Features, Labels

DIRECTIONS = 32  # of the public map, those of the largest variance
ROWS_AT_ONCE = 2**13  # rows at a time: never all of them in double precision
LEAST_RECORDS = 20  # of fewer, the mean direction is mostly chance
# ‖E φ‖² of features of another kind, and what one class alone adds to it. Measured
# (docs/private-head.md): .60 for news posts with old novels for public text, .07 with
# modern text; at most .48 for one class of the public kind.
FAR_FROM_PUBLIC = 0.25
OF_ONE_CLASS = 0.4
PUBLIC_IS_FAR = "the public data are of another kind than this client's records"
OTHER_PUBLIC_DATA = "Use public data of the same kind, unlabelled"
DRAWN_ROWS_ARE_FAR = (
    "the rows that are drawn from the schema are unlike this client's records"
)
CORRECT_THE_SCHEMA = (
    "Check the ranges and quantiles in the schema: half of the values should lie on "
    "each side of the middle. Or name public records in [aux], if there are any"
)
ONCE = "far-features"  # in a simulation's vault, if the warning was given
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MeanDirection:
    """How long the mean direction of a client's records is, as a square, and how long it
    may be.
    """

    found: float
    limit: float

    @property
    def is_far(self) -> bool:
        return self.found > self.limit


def mean_direction(
    public: Arrays, features: Features, labels: Labels
) -> MeanDirection | None:
    """Return ‖E φ‖² without the share of chance, and from where on it is far, or None if
    that cannot be known.
    """
    if "mean" not in public or "basis" not in public:  # of a scorer without a map
        return None
    records = len(features)
    if records < LEAST_RECORDS:
        return None
    basis = public["basis"][:, :DIRECTIONS].astype(np.float64)
    total = np.zeros(basis.shape[1])
    for start in range(0, records, ROWS_AT_ONCE):
        block = np.asarray(features[start : start + ROWS_AT_ONCE], np.float64)
        total += unit_rows((block - public["mean"]) @ basis).sum(axis=0)
    mean: Vector = total / records
    squared = float(mean @ mean)
    found = (records * squared - 1) / (records - 1)
    _, counts = np.unique(labels, return_counts=True)
    of_classes = float(np.square(counts / records).sum())
    return MeanDirection(found, FAR_FROM_PUBLIC + OF_ONE_CLASS * of_classes)


def warn_of_far_features(
    order: PrepareOrder,
    own_data: Callable[[], tuple[Records, Features]],
    once_in: Path | None = None,
    drawn: bool = False,
) -> None:
    """Warn the owner if the public features are of another kind than this client's.

    It returns nothing and never raises, so that no reply depends on it. What cannot be
    read here cannot be read for the release either, which says so.

    Args:
        order: What is asked, with the public map.
        own_data: Loads the client's records and their features.
        once_in: The vault of a simulation, whose clients warn once together.
        drawn: Whether the public rows are drawn from a table's schema.
    """
    try:
        records, features = own_data()
        found = mean_direction(order.public, features, records.labels)
        if found is None or not found.is_far:
            return
        if once_in is not None and not _is_first(once_in):
            return
    except Exception:
        return
    log.warning(
        "%s: %s: in features, their mean direction has length %.2f (far: above %.2f). "
        "The head computed from releases then loses accuracy, most of all with few "
        "records or a small ε. %s. This was checked here before anything was spent. "
        "The server is not told.",
        order.client,
        DRAWN_ROWS_ARE_FAR if drawn else PUBLIC_IS_FAR,
        math.sqrt(found.found),
        math.sqrt(found.limit),
        CORRECT_THE_SCHEMA if drawn else OTHER_PUBLIC_DATA,
    )


def _is_first(vault: Path) -> bool:
    """Whether no other client of this simulation has warned."""
    vault.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        (vault / ONCE).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

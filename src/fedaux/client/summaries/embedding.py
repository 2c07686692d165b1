"""Sums and counts per class of the records' directions φ, for the class embedding.

What the server makes of them is in `scoring.embedding`.
"""

from __future__ import annotations

import numpy as np

from fedaux.core.arrays import Arrays, Vector
from fedaux.privacy.mechanism import Summary, max_norm, quantize, unit_rows
from fedaux.privacy.per_record import project
from fedaux.scoring.base import Features, Labels, Shares
from fedaux.scoring.embedding import check_map, sums_bound


def embed_per_record(public: Arrays, features: Features) -> Vector:
    """Compute `embed` for private rows: each φ(x) is, bit for bit, a function of its own
    row.
    """
    check_map(public, features)
    return unit_rows(project(features, public["mean"], public["basis"]))


def class_sums(
    embedded: Vector,
    labels: Labels,
    classes: int,
    adjacency: str,
    size: int,
    shares: Shares,
) -> Summary:
    """(Σ of φ per class, count per class), flattened to classes·(k + 1) integers.
    embedded: rows of norm at most 1.

    One record of share s adds u of norm ≤ t = ⌊s·GRID⌋ to the sum of its class and t to
    its count. So a unit adds to class c a sum of norm ≤ a_c·GRID and a count a_c·GRID,
    with Σ a_c ≤ 1: all together a vector of norm ≤ √(Σ 2a_c²)·GRID ≤ √2·GRID. Exchanged
    for a unit with b_c, the squared distance is at most Σ (a_c + b_c)² + (a_c − b_c)² =
    2 Σ a_c² + b_c² ≤ 4. A label outside the classes adds nothing.
    """
    labels = np.asarray(labels)
    counts = np.broadcast_to(max_norm(shares), len(embedded))
    steps = quantize(embedded, shares)
    is_counted = (labels >= 0) & (labels < classes)
    rows = labels[is_counted]
    values = np.zeros((classes, steps.shape[1] + 1), np.int64)
    np.add.at(values[:, :-1], rows, steps[is_counted])
    np.add.at(values[:, -1], rows, counts[is_counted])
    bound = sums_bound(adjacency, size)
    return Summary(values.ravel(), bound.step, bound.sensitivity, adjacency, size)

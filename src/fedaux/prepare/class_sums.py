"""A private linear head in one shot: each client releases the sum of φ for every class, and how many there are.

A record has one class, so all sums and counts together cost what one sum costs. The server adds up the releases and
puts a closed-form head (linear discriminant analysis) on them: private from end to end, labels included, and as good
for clients with one class as for clients with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedaux.exchange import Arrays, Release
from fedaux.prepare.scoring import Reference
from fedaux.privacy.bounded import GRID, to_steps
from fedaux.privacy.release import Summary

Vector = NDArray[np.float64]
REACH = {"replace-one": 2.0, "add-remove": np.sqrt(2.0)}  # in units of GRID; see `class_sums`


def class_sums(embedded: Vector, labels: NDArray[np.int64], classes: int, adjacency: str, size: int) -> Summary:
    """(Σ of φ per class, count per class), flattened to classes·(k + 1) integers. embedded: rows of norm at most 1.

    One record adds u of norm ≤ GRID to the sum of its class and GRID to its count: a vector of norm ≤ √2·GRID in the
    coordinates of that class alone. Exchanged for a record of another class, two such vectors in different coordinates:
    √(2 + 2) = 2. Exchanged for one of the same class, the count stays and the sum moves by at most 2.
    """
    steps = to_steps(embedded)
    values = np.zeros((classes, steps.shape[1] + 1), np.int64)
    np.add.at(values[:, :-1], labels, steps)
    np.add.at(values[:, -1], labels, GRID)
    return Summary(values.ravel(), 1.0 / GRID, float(np.ceil(GRID * REACH[adjacency])), adjacency, size)


def discriminant_head(public: Arrays, reference: Reference, releases: Sequence[Release], classes: int) -> Arrays:
    """The head on h0's own features, as flat weights of a `linear_head`: (C·H weights, C biases).

    Class means are shrunk towards the mean of all by what the known noise asks for; rows of a class are taken to vary
    as public rows do, and the map φ to be linear, which it is for the nine rows in ten that are not clipped.
    """
    total = np.sum([one.arrays["values"] * one.step for one in releases], axis=0).reshape(classes, -1)
    noise = sum((one.scale * one.step) ** 2 for one in releases)  # variance of each coordinate of the total
    counts = np.maximum(total[:, -1], np.sqrt(noise) + 1.0)
    means = total[:, :-1] / counts[:, None]
    centre = counts @ means / counts.sum()
    spread = np.maximum(0.0, np.square(means - centre).mean() - np.mean(noise / counts**2))
    means = centre + (means - centre) * (spread / (spread + noise / counts**2))[:, None]
    precision = np.linalg.inv(reference.covariance + 1e-6 * np.trace(reference.covariance) * np.eye(means.shape[1]))
    weights = means @ precision
    bias = np.log(counts / counts.sum()) - 0.5 * (weights * means).sum(axis=1)
    on_features = weights @ public["basis"].T.astype(np.float64)
    bias = bias - on_features @ public["mean"].astype(np.float64)
    return {"parameters": np.concatenate([on_features.ravel(), bias]).astype(np.float32)}

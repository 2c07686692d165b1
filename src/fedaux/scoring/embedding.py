"""φ: a record's features, centred and half-whitened by a public map, as a direction.

The map comes from features of D⁻ alone. Each record's φ has norm at most 1, so exchanging one record moves a sum of φ
by at most 2, whatever the record is; that is the whole proof.
"""

from __future__ import annotations

import numpy as np

from fedaux.core.messages import Arrays
from fedaux.privacy.clipping import unit_rows
from fedaux.privacy.per_record import project
from fedaux.scoring.base import Features, Vector, check_shapes

_BLOCK = 2**13  # rows of D⁻ at a time: never all of them in double precision


def publish(negatives: Features, embedding_dim: int) -> Arrays:
    mean, basis = public_map(negatives, embedding_dim)
    return {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}


def embed(public: Arrays, features: Features) -> Vector:
    """φ(x) = u/‖u‖ with u = (h0(x) − μ) B: fast, for public rows."""
    _check(public, features)
    return unit_rows((np.asarray(features, np.float64) - public["mean"]) @ public["basis"].astype(np.float64))


def embed_per_record(public: Arrays, features: Features) -> Vector:
    """The same for private rows: each φ(x) is, to the bit, a function of its own row."""
    _check(public, features)
    return unit_rows(project(features, public["mean"], public["basis"]))


def _check(public: Arrays, features: Features) -> None:
    check_shapes(public, mean=(features.shape[1],), basis=(features.shape[1], public["basis"].shape[1]))


def public_map(negatives: Features, embedding_dim: int) -> tuple[Vector, Vector]:
    """(μ, B) such that (h − μ) B is the half-whitened PCA of h, scaled so that rows of D⁻ have norm 1 in the median.

    Half-whitening divides a direction of variance v by v^¼: it amplifies directions of low variance, in which classes
    differ, without amplifying the noise of the lowest as much.
    """
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(negatives), _BLOCK)]
    mean = negatives.mean(axis=0, dtype=np.float64)
    covariance = sum((negatives[rows] - mean).T @ (negatives[rows] - mean) for rows in blocks) / len(negatives)
    if not np.isfinite(covariance).all():
        raise ValueError("the features of the auxiliary data are not finite; look for NaN and inf in it")
    variances, directions = np.linalg.eigh(covariance)
    keep = np.argsort(variances)[::-1][: min(embedding_dim, len(negatives) - 1)]
    keep = keep[variances[keep] > 1e-9 * variances.max(initial=1e-30)]
    if keep.size == 0:
        raise ValueError(
            "all features of the negatives are equal: there is nothing to score with; check the auxiliary data"
        )
    basis = directions[:, keep] * variances[keep] ** -0.25
    norms = np.concatenate([np.linalg.norm((negatives[rows] - mean) @ basis, axis=1) for rows in blocks])
    return mean, basis / np.median(norms)

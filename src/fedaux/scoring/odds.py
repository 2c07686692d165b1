"""From what a scorer has fitted to weights: of all teachers on a block of examples, or of one teacher on all of them.

Where clients' odds are mixtures of density ratios that they share (`Fitted.mixtures`), weights are a matrix product in
single precision, the precision of the ratios themselves; otherwise each client's log-odds function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedaux.core.io import temporary_array
from fedaux.scoring.base import MIN_WEIGHT, Features, Fitted, Vector, teacher_weights

ENTRIES = 2**18  # teachers × examples at a time
_BLOCK = 2**16  # examples at a time, of one client
_RANGE = 60.0  # of exponents: e^-60 of any coefficient is no weight, e^60 of all of them is a float32


@dataclass(frozen=True, eq=False)
class Scored:
    """One prototype's rows, ready for the weights of any of its clients."""

    fitted: Fitted
    rows: Features  # after `Fitted.transform`; of mixtures e^{row − peak}, or e^row for certainties, (m, N), float32
    peak: Vector
    kind: str

    @classmethod
    def of(cls, fitted: Fitted, rows: Features, peak: Vector, kind: str) -> Scored:
        if fitted.mixtures is None:
            return cls(fitted, rows, peak, kind)
        shift = peak if kind == "odds" else np.zeros_like(peak)
        ratios = temporary_array((rows.shape[1], len(rows)), np.float32)
        for block in blocks(len(rows), ENTRIES // rows.shape[1]):
            ratios[:, block] = exp_rows(rows[block], shift[block])
        return cls(fitted, ratios, peak, kind)

    def weights(self, client: str) -> Features:
        """`teacher_weights` of this client's log-odds; of a mixture, a product of its coefficients with the rows."""
        if self.fitted.mixtures is None:
            return teacher_weights(log_odds(self.fitted, client, self.rows), self.peak, self.kind)
        odds = self.fitted.mixtures[client].astype(np.float32) @ self.rows
        if self.kind == "certainty":
            odds /= 1 + odds
        return np.minimum(np.maximum(odds, MIN_WEIGHT, out=odds), 1.0, out=odds)


def scaled_odds(fitted: Fitted, clients: Sequence[str], kind: str) -> Callable[[Features], tuple[Features, Vector]]:
    """Rows, (B, m) → (odds (n, B), shift (B,)): the clients' odds are odds·e^shift, the largest neither 0 nor ∞.

    Certainties need odds as they are: their shift is 0.
    """
    relative = kind == "odds"

    def plain(rows: Features) -> tuple[Features, Vector]:
        logs = np.stack([fitted.log_odds[client](rows) for client in clients])
        shift = logs.max(axis=0) if relative else np.zeros(len(rows))
        return np.exp(np.clip(logs - shift, -_RANGE, _RANGE)), shift

    if fitted.mixtures is None:
        return plain
    mixtures = np.stack([fitted.mixtures[client] for client in clients]).astype(np.float32)
    used, buffer = mixtures.any(axis=0), np.empty((len(mixtures), 0), np.float32)

    def product(rows: Features) -> tuple[Features, Vector]:
        nonlocal buffer
        if buffer.shape[1] != len(rows):
            buffer = np.empty((len(mixtures), len(rows)), np.float32)
        shift = rows[:, used].max(axis=1).astype(np.float64) if relative else np.zeros(len(rows))
        return np.matmul(mixtures, exp_rows(rows, shift), out=buffer), shift

    return product


def block_weights(odds: Features, shift: Vector, peak: Vector, kind: str) -> Features:
    """`teacher_weights` of `scaled_odds`, in place."""
    if kind == "odds":
        odds *= np.exp(shift - peak).astype(odds.dtype)
    else:
        odds /= 1 + odds
    return np.maximum(odds, MIN_WEIGHT, out=odds)


def exp_rows(rows: Features, shift: Vector) -> Features:
    """e^{row − shift}, (N, m) → (m, N), float32. What is cut off has no coefficient, or the least weight."""
    return np.exp(np.clip(rows.T - shift, -_RANGE, _RANGE)).astype(np.float32, order="C")


def log_odds(fitted: Fitted, client: str, rows: Features) -> Vector:
    """Of one client on rows after `Fitted.transform`, block by block."""
    function = fitted.log_odds[client]
    return np.concatenate([function(rows[block]) for block in blocks(len(rows), _BLOCK)])


def blocks(count: int, size: int) -> Iterator[slice]:
    stride = max(1, size)
    return (slice(start, start + stride) for start in range(0, count, stride))

"""What an attack found, and on what terms it was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.deploy.audit.bounds import lower_bounds, projected

Vector = NDArray[np.float64]
FAILURE_PROBABILITY = 0.05 / 20  # of being wrong, for each attack that draws: all of them together then hold with 95 %
NO_PRIVACY = float("inf")  # the ε of what can be read off without any noise


@dataclass(frozen=True)
class AuditConfig:
    """The budget that is claimed, and how many replies are drawn from each of two neighbours."""

    epsilon: float = 4.0  # below 1, noise hides nearly everything from an audit
    delta: float = 1e-5
    draws: int = 200


@dataclass(frozen=True)
class AttackResult:
    """`bound` is an ε that was proven against the claim; the claim is refuted where it is larger."""

    name: str
    attacked: str
    claimed: float
    bound: float
    draws: int
    violated: bool
    detail: str
    skipped: bool = False

    @classmethod
    def of(
        cls, name: str, attacked: str, claimed: float, bound: float, draws: int = 0, detail: str = ""
    ) -> AttackResult:
        return cls(name, attacked, claimed, bound, draws, bound > claimed, detail)

    @classmethod
    def skip(cls, name: str, attacked: str, reason: str) -> AttackResult:
        return cls(name, attacked, 0.0, 0.0, 0, False, reason, skipped=True)


Draw = Callable[[], Vector]  # one reply, drawn anew
Attack = Callable[[Path, AuditConfig], AttackResult]  # (an empty folder, terms)


def empirical_epsilon(neighbours: Sequence[Draw], terms: AuditConfig, direction: Vector | None = None) -> float:
    """ε from drawing replies of two neighbours: the better of both bounds, which agree where noise is Gaussian.

    An attacker who knows in which `direction` the second differs from the first need not learn it from the draws.
    """
    low, high = (np.stack([draw() for _ in range(terms.draws)]) for draw in neighbours)
    scores = projected(low, high) if direction is None else (low @ direction, high @ direction)
    return max(lower_bounds(*scores, terms.delta, 1 - FAILURE_PROBABILITY))

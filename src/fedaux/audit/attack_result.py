"""The settings of an audit, and what an attack measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.audit.bounds import linear_scores, lower_bounds
from fedaux.privacy.mechanism import epsilon_of

Vector = NDArray[np.float64]
FAILURE_PROBABILITY = 0.05 / 20  # for each attack that draws: all of them together then hold with 95 %


@dataclass(frozen=True)
class AuditConfig:
    """The budget that is claimed, and how many replies are drawn from each of two neighbours."""

    epsilon: float = 4.0  # below 1, noise hides nearly everything from an audit
    delta: float = 1e-5
    draws: int = 200

    def fewer_draws(self) -> AuditConfig:
        """For what moves a release by many times its sensitivity."""
        return replace(self, draws=max(60, self.draws // 5))

    def more_draws(self) -> AuditConfig:
        """For missing noise, which is harder to detect than a record that moves a release far."""
        return replace(self, draws=2 * self.draws)


@dataclass(frozen=True)
class AttackResult:
    """`bound` is an ε that was proven against the claim; the claim is refuted where it is larger."""

    claimed: float
    bound: float
    detail: str = ""
    draws: int = 0
    skipped: bool = False
    name: str = ""  # this and the next are added from the table of attacks
    attacked: str = ""

    @property
    def violated(self) -> bool:
        return self.bound > self.claimed

    @classmethod
    def exact(cls, leaks: bool, detail: str) -> AttackResult:
        """An attack that needs no draws: what leaks is read without any noise, so no ε bounds it."""
        return cls(0.0, math.inf if leaks else 0.0, detail)


class AttackSkipped(Exception):
    """An attack that cannot be made on this machine; the message says why."""


def at_distance(moved: float, scale: float, audit: AuditConfig, detail: str = "") -> AttackResult:
    """Two replies under Gaussian noise of this scale, `moved` apart before it: their ε is known without any draws."""
    epsilon = epsilon_of(scale / moved, audit.delta) if moved > 0 else 0.0
    return AttackResult(audit.epsilon, epsilon, detail)


Draw = Callable[[], Vector]  # one reply, drawn anew
Attack = Callable[[Path, AuditConfig], AttackResult]  # (an empty folder, settings)


def distinguish(
    neighbours: Sequence[Draw], audit: AuditConfig, detail: str = "", direction: Vector | None = None
) -> AttackResult:
    """The attack of telling two neighbours apart by their replies, under the claim `audit.epsilon`.

    It proves the better of both lower bounds on ε, which agree for Gaussian noise. An attacker who knows in which
    `direction` the second neighbour differs from the first need not learn it from the draws.
    """
    first, second = (np.stack([draw() for _ in range(audit.draws)]) for draw in neighbours)
    scores = linear_scores(first, second) if direction is None else (first @ direction, second @ direction)
    bound = max(lower_bounds(*scores, audit.delta, 1 - FAILURE_PROBABILITY))
    return AttackResult(audit.epsilon, bound, detail, audit.draws)

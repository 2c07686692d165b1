"""What an attack of the owner's audit measured."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class AttackResult:
    """`bound` is an ε that was proven against the claim. The claim is refuted if it
    is larger.
    """

    claimed: float
    bound: float
    detail: str = ""
    skipped: bool = False
    name: str = ""  # this and the next are added from the table of attacks
    attacked: str = ""

    @property
    def violated(self) -> bool:
        return self.bound > self.claimed

    @classmethod
    def exact(cls, leaks: bool, detail: str) -> AttackResult:
        """An attack that needs no draws: what leaks is read without any noise, so no ε
        bounds it.
        """
        bound = math.inf if leaks else 0.0
        return cls(0.0, bound, detail)


class AttackSkipped(Exception):
    """An attack that cannot be made on this machine. The message says why."""

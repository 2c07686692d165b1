"""What a mutation is, and the two tables of what must find each: tests, and attacks on
the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

Mutation = Callable[[pytest.MonkeyPatch], None]


def full_name(mutation: Mutation) -> str:
    """Return the room and the name of a mutation: `deployment.headers_have_no_end`."""
    return f"{mutation.__module__.rpartition('.')[2]}.{mutation.__name__}"


@dataclass(frozen=True)
class FailingTest:
    """A test that must fail under a mutation, and then print `red`; `attack` is a
    number of docs/attacks.md, or "".
    """

    mutation: Mutation
    attack: str
    test: str  # a node id below tests
    red: str

    @property
    def name(self) -> str:
        return full_name(self.mutation)

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]

    @property
    def function(self) -> str:
        return self.test.partition("::")[2].partition("[")[0]


@dataclass(frozen=True)
class AuditFinding:
    """Attacks on the package that must all find a mutation, with this number of draws;
    0 is their default.
    """

    mutation: Mutation
    attacks: tuple[str, ...]
    draws: int
    slow: bool

    @property
    def name(self) -> str:
        return full_name(self.mutation)


FAILING_TESTS: list[FailingTest] = []
AUDIT_FINDINGS: list[AuditFinding] = []


def fails(test: str, *, red: str, attack: str = "") -> Callable[[Mutation], Mutation]:
    """Register the decorated mutation together with a test that must fail under it."""

    def register(mutation: Mutation) -> Mutation:
        FAILING_TESTS.append(FailingTest(mutation, attack, test, red))
        return mutation

    return register


def found_by(
    *attacks: str, draws: int = 0, slow: bool = False
) -> Callable[[Mutation], Mutation]:
    """Register the decorated mutation together with attacks on the package that must
    find it.
    """

    def register(mutation: Mutation) -> Mutation:
        AUDIT_FINDINGS.append(AuditFinding(mutation, attacks, draws, slow))
        return mutation

    return register

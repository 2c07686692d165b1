"""Mutations: each replaces one behaviour of fedaux by a defect, which a test or an
attack on the package must find.

`python -m helpers.mutations [NUMBER | NAME ...]` applies them one at a time and runs
their tests. A mutation replaces a function, a method or a constant where it is looked
up when it is called, and raises an error if that is missing.
"""

from helpers.mutations import deployment, gate, layer, records, servers
from helpers.mutations.gate import uncapped
from helpers.mutations.records import guessed_split, labels_by_record
from helpers.mutations.registry import (
    AUDIT_FINDINGS,
    FAILING_TESTS,
    AuditFinding,
    FailingTest,
    Mutation,
    full_name,
)

ROOMS = {
    room.__name__.rpartition(".")[2]: room
    for room in (deployment, gate, layer, records, servers)
}

__all__ = [
    "AUDIT_FINDINGS",
    "FAILING_TESTS",
    "AuditFinding",
    "FailingTest",
    "Mutation",
    "find_mutation",
    "full_name",
    "guessed_split",
    "labels_by_record",
    "uncapped",
]


def find_mutation(name: str) -> Mutation:
    """Return the mutation with this full name."""
    room, _, function = name.partition(".")
    mutation: Mutation = getattr(ROOMS[room], function)
    return mutation

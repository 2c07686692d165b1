"""Read `client` and `privacy` and you have seen all that computes on a private record.

`data` reads records, and everything else reaches them through a few doors: functions
that open a site's records, and those that compute on each record alone. Who imports a
door is derived from the sources; every room above `client` that does is named here,
with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "fedaux"
# rooms that see private records by their nature: `data` reads them
INSIDE = ("client", "privacy", "data")

DOORS = (
    # the records of a site, or those of all clients of a simulation
    "fedaux.data.federated.open_private",
    "fedaux.data.federated.read_private",
    "fedaux.data.federated.read_bins",
    "fedaux.data.federated.open_data",
    "fedaux.data.user_rows.UserRecords",
    "fedaux.client.loading",
    # computations on records
    "fedaux.client.features",
    "fedaux.client.sums",
    "fedaux.client.summaries",
    "fedaux.client.stacked_heads",
    "fedaux.client.training",
    "fedaux.privacy.dp_sgd",
    "fedaux.privacy.mechanism.quantize",
    "fedaux.privacy.per_record",
    "fedaux.privacy.units.Units",
    "fedaux.privacy.units.public_size",
)
SIMULATION = "a simulation's own records, for its owner's eyes"
OWNER = "the site's owner looks at the site's own records; nothing leaves"
ALLOWED: dict[str, str] = {
    "__init__.py": "names for users",
    "audit/own_site.py": OWNER,
    "audit/releases.py": OWNER,
    "deploy/checks.py": OWNER,
    "flower/dropin_client.py": "hands an app's rows to the client's releases",
    "flower/release_strategy.py": "public rows, in the form of an app's private ones",
    "flower/stacked_heads.py": "has simulated clients train together",
    "report/comparison_page.py": SIMULATION,
    "report/reported_run.py": SIMULATION,
    "runs/dry_run.py": SIMULATION,
    "runs/planner.py": "summarises public rows as a client would its own",
    "runs/runner.py": SIMULATION,
}


def imported_names(source: str) -> Iterator[str]:
    """Every module or name that a source imports, in full."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def doors_of(source: str) -> set[str]:
    """Return the doors that a source imports, or something from behind."""
    return {
        door
        for name in imported_names(source)
        for door in DOORS
        if name == door or name.startswith(f"{door}.")
    }


def outside() -> dict[str, set[str]]:
    """Return the doors of every module outside the rooms that see private records."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        doors = doors_of(path.read_text(encoding="utf-8"))
        if doors and place.parts[0] not in INSIDE:
            found[place.as_posix()] = doors
    return found


def test_private_records_are_computed_on_in_client_and_privacy_alone() -> None:
    assert set(outside()) == set(ALLOWED)


@pytest.mark.parametrize("room", ["scoring", "methods", "server", "models", "messages"])
def test_what_a_server_runs_has_no_door_to_a_private_record(room: str) -> None:
    assert [place for place in outside() if place.startswith(f"{room}/")] == []


@pytest.mark.parametrize("door", DOORS)
def test_every_door_exists_and_is_used(door: str) -> None:
    users = [
        path
        for path in PACKAGE.rglob("*.py")
        if door in doors_of(path.read_text(encoding="utf-8"))
    ]
    assert users


def test_a_door_would_be_found() -> None:
    assert doors_of("from fedaux.client.summaries.logistic import solve") == {
        "fedaux.client.summaries"
    }
    assert doors_of("from fedaux.privacy import per_record") == {
        "fedaux.privacy.per_record"
    }
    assert doors_of("import fedaux.client.loading") == {"fedaux.client.loading"}
    assert doors_of("from fedaux.data.federated import open_public") == set()

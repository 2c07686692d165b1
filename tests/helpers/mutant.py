"""A plugin of pytest: `FEDAUX_MUTANT=NAME pytest -p helpers.mutant …` applies a
mutation to the whole session.

It does so before any test is imported, and in every Python process that a test starts:
those find the `sitecustomize` in `mutant_start`, which Python imports first.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# the environment variable that names the mutation: `deployment.headers_have_no_end`
MUTANT = "FEDAUX_MUTANT"
HELPERS = Path(__file__).resolve().parent


def apply_mutant() -> None:
    """Apply the mutation that the environment names, until this process ends."""
    from helpers.mutations import find_mutation

    find_mutation(os.environ[MUTANT])(pytest.MonkeyPatch())


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    apply_mutant()
    paths = [
        str(HELPERS / "mutant_start"),
        str(HELPERS.parent),
        os.environ.get("PYTHONPATH", ""),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)

"""Memory that is freed stays with the process, and the kernel hands out no new pages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mallopt is of glibc")

# allocates and frees 64 MB, as a step of training does, and counts page faults
STEPS = """
import resource, sys
import numpy as np
from fedaux.core.memory import reuse_memory

accepted = reuse_memory() if sys.argv[1] == "reuse" else False
np.ones(2**23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(2**23)
print(accepted, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(arm: str, **environment: str) -> tuple[bool, int]:
    """What `reuse_memory` returned, and the page faults of 20 steps after the first."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GLIBC_", "MALLOC_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", STEPS, arm],
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    accepted, faults = done.stdout.split()
    return accepted == "True", int(faults)


def test_a_step_finds_the_memory_of_the_one_before() -> None:
    _, usual = page_faults("default")
    accepted, kept = page_faults("reuse")
    assert accepted
    assert kept < 1_000
    assert usual > 5 * kept


@pytest.mark.parametrize(
    "environment",
    [
        {"GLIBC_TUNABLES": "glibc.malloc.arena_max=8"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
    ],
    ids=lambda environment: next(iter(environment)),
)
def test_the_environment_of_a_user_comes_first(environment: dict[str, str]) -> None:
    assert page_faults("reuse", **environment)[0] is False


def test_other_tunables_of_glibc_do_not_concern_memory() -> None:
    tunables = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=512"}
    assert page_faults("reuse", **tunables)[0] is True

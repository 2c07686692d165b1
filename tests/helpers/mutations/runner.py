"""Runs the tests that must find mutations: green without any, then red under each, for
the stated reason.

All of them take minutes. PYTHONPATH must name `tests`. Arguments choose mutations by
the number of an attack in docs/attacks.md, by name, by room, or by both
(`deployment.headers_have_no_end`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from helpers.mutant import MUTANT
from helpers.mutations import FAILING_TESTS, FailingTest

TESTS = Path(__file__).resolve().parents[2]
TIMEOUT = 300.0  # seconds for each test, which must not hang under a mutation
TESTS_FAILED = 1  # pytest's exit code; others mean that it could not run them


def run_tests(tests: Sequence[str], mutant: str = "") -> tuple[int, str]:
    """Run tests, under a mutation if one is named: (pytest's exit code, or −1 if a test
    hangs; the output).
    """
    words = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"]
    under = ["-p", "helpers.mutant"] if mutant else []
    paths = [str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")]
    try:
        done = subprocess.run(
            [*words, *under, *(str(TESTS / test) for test in tests)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), MUTANT: mutant},
            cwd=TESTS.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT * len(tests),
        )
    except subprocess.TimeoutExpired as error:
        return -1, str(error)
    return done.returncode, done.stdout + done.stderr


def turns_red(failing: FailingTest) -> tuple[bool, str]:
    """Whether the test fails under its mutation and for the stated reason; and the
    output.
    """
    code, output = run_tests([failing.test], failing.name)
    return code == TESTS_FAILED and failing.red in output, output


def chosen(words: Sequence[str]) -> list[FailingTest]:
    """Return what the arguments choose; everything without any."""
    wanted = set(words)
    return [
        row
        for row in FAILING_TESTS
        if not wanted or wanted & {row.attack, row.name, *row.name.split(".")}
    ]


def main(words: Sequence[str]) -> int:
    """Print a line for each mutation, and the output where its test is not red; return
    the number of misses.
    """
    rows = chosen(words)
    if not rows:
        print(f"no mutation is called {' or '.join(words)}")
        return 1
    code, output = run_tests(sorted({row.test for row in rows}))
    if code:
        print(output, "the tests fail without any mutation", sep="\n")
        return 1
    print("green without any mutation", flush=True)
    missed = 0
    for row in rows:
        red, output = turns_red(row)
        missed += not red
        print(
            f"{'red' if red else 'NOT RED'}  {row.attack or '-'}: {row.name}",
            flush=True,
        )
        if not red:
            print(output)
    return missed

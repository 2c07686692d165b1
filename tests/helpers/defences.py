"""`python -m helpers.defences [NUMBER ...]`: each defence is removed, in a copy of the source, and its test fails.

All of them take minutes. PYTHONPATH must name `tests`; numbers are those of docs/attacks.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src"
TIMEOUT = 300.0  # seconds for each: a test that hangs without its defence is a bad one
TABLE = TESTS / "attacks" / "defences.toml"


@dataclass(frozen=True)
class Defence:
    attack: str  # its number in docs/attacks.md
    what: str
    file: str  # below src/fedaux
    old: str
    new: str  # in its place, the attack succeeds
    test: str  # below tests
    red: str  # what the test then says

    def source(self, source: Path = SOURCE) -> Path:
        return source / "fedaux" / self.file

    def removed(self) -> str:
        """The text of its file without it."""
        return self.source().read_text(encoding="utf-8").replace(self.old, self.new)


def defences() -> list[Defence]:
    return [Defence(**row) for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["defence"]]


def run_tests(source: Path, tests: Sequence[str]) -> tuple[int, str]:
    """(exit code, output) of pytest with this source; −1 if it hangs."""
    paths = f"{source}{os.pathsep}{TESTS}{os.pathsep}{TESTS.parent}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *(str(TESTS / test) for test in tests)],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=TESTS.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT * len(tests),
        )
    except subprocess.TimeoutExpired as error:
        return -1, str(error)
    return done.returncode, done.stdout + done.stderr


def turns_red(defence: Defence, source: Path) -> tuple[bool, str]:
    """Whether the test fails without the defence, and for this reason; and what it says."""
    path = defence.source(source)
    path.write_text(defence.removed(), encoding="utf-8")
    try:
        code, output = run_tests(source, [defence.test])
    finally:
        shutil.copy2(defence.source(), path)
    return code == 1 and defence.red in output, output


def main(numbers: Sequence[str]) -> int:
    chosen = [defence for defence in defences() if not numbers or defence.attack in numbers]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source)
        code, output = run_tests(source, sorted({defence.test for defence in chosen}))
        if code:
            print(output, "the tests fail with all defences in place", sep="\n")
            return 1
        print("green with all defences in place", flush=True)
        for defence in chosen:
            red, output = turns_red(defence, source)
            missed += not red
            print(f"{'red' if red else 'NOT RED'}  {defence.attack}: {defence.what}", flush=True)
            if not red:
                print(output)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

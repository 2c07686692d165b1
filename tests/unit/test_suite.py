"""What a unit test may do, and what tests share."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
UNIT = TESTS / "unit"

WHOLE_RUNS = {"run", "resume", "compare", "tune"}  # the functions that train


@cache
def imports(source: str) -> frozenset[tuple[str, str]]:
    """(module, name) of everything that a source imports; (module, "") for a whole
    module.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                ("." * node.level + (node.module or ""), alias.name)
                for alias in node.names
            }
    return frozenset(found)


def misplaced(source: str) -> set[str]:
    """What a unit test imports although it starts processes, trains a whole run, or
    needs data from elsewhere.
    """
    found = set()
    for module, name in imports(source):
        if (
            module.split(".")[0] in ("subprocess", "multiprocessing")
            or module == "helpers.shared_data"
        ):
            found.add(module)
        if name in WHOLE_RUNS and (
            module == "fedaux" or module.startswith(("fedaux.runs", "fedaux.sweeps"))
        ):
            found.add(f"{module}.{name}")
    return found


def test_unit_tests_start_no_process_and_train_no_run() -> None:
    found = {
        path.relative_to(UNIT).as_posix(): misplaced(path.read_text("utf-8"))
        for path in UNIT.rglob("*.py")
    }
    assert {name: what for name, what in found.items() if what} == {}


def test_what_is_misplaced_would_be_found() -> None:
    assert misplaced("import subprocess") == {"subprocess"}
    assert misplaced("def test():\n    from fedaux import Config, run") == {
        "fedaux.run"
    }
    assert misplaced("from fedaux.sweeps.compare import compare") == {
        "fedaux.sweeps.compare.compare"
    }
    assert (
        misplaced("from fedaux.server.loop import run\nfrom fedaux import Config")
        == set()
    )


def test_no_test_imports_a_test() -> None:
    """What tests share is in `helpers`."""
    for path in TESTS.rglob("*.py"):
        for module, _ in imports(path.read_text("utf-8")):
            first = module.split(".")[0]
            assert first not in ("", "tests", "conftest"), path
            assert not first.startswith("test_"), path


def test_helpers_are_used() -> None:
    sources = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")]
    used = {part for source in sources for pair in imports(source) for part in pair}
    programs = {
        "big_replies",
        "hostile_node",
        "kill_points",
        "lone_node",
        "memory_probe",
        "quick_node",
        "slow_training",
    }  # run by name, in processes of their own
    for path in (TESTS / "helpers").glob("*.py"):
        assert (
            path.stem in {"__init__", *programs}
            or {f"helpers.{path.stem}", path.stem} & used
        ), path.name

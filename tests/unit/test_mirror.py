"""The tests mirror the source: one unit test file for each module, and nothing in it that belongs elsewhere."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
UNIT, PACKAGE = TESTS / "unit", TESTS.parent / "src" / "fedaux"
TEMPLATES = PACKAGE / "config" / "templates"  # copied by `fedaux init`, never imported

AUDIT = "attacks on a whole client: end_to_end/test_audit_mutations.py puts back every defect that they must find"
OWN = "attacks on a site's own settings: end_to_end/test_audit_own_site.py runs them in every format"
WITHOUT_TWIN = {
    "config/presets": "one constant, which end_to_end/test_demo.py runs",
    "core/progress": "types alone, one of each in unit/report/test_progress.py",
    "deploy/audit/accounts": AUDIT,
    "deploy/audit/dropin": AUDIT,
    "deploy/audit/noise": AUDIT,
    "deploy/audit/own_site": OWN,
    "deploy/audit/sources": AUDIT,
    "deploy/audit/statements": AUDIT,
    "deploy/audit/synthetic": OWN,
    "deploy/audit/texts": AUDIT,
    "deploy/audit/wire": AUDIT,
    "experiments/region_app": "a whole server, which end_to_end/test_region_app.py runs",
    "experiments/sweeps/tuning": "runs alone, which end_to_end/test_tune.py makes",
    "experiments/server_app": "four calls in a row, which end_to_end/test_server_app.py makes",
}
WHOLE_PACKAGE = {"mirror", "public_names", "rooms"}
WHOLE_RUNS = {"run", "resume", "compare", "tune"}  # the functions that train


def modules() -> set[str]:
    """Every module that holds code, as `room/name`."""
    paths = (path for path in PACKAGE.rglob("*.py") if TEMPLATES not in path.parents and path.name != "__init__.py")
    return {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in paths}


def twins() -> set[str]:
    """The modules that unit test files are named after."""
    paths = (path.relative_to(UNIT) for path in UNIT.rglob("test_*.py"))
    return {(path.parent / path.stem.removeprefix("test_")).as_posix() for path in paths} - WHOLE_PACKAGE


@cache
def imports(source: str) -> frozenset[tuple[str, str]]:
    """(module, name) of everything that a source imports; (module, "") for a whole module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {("." * node.level + (node.module or ""), alias.name) for alias in node.names}
    return frozenset(found)


def misplaced(source: str) -> set[str]:
    """What a unit test imports although it starts processes, trains a whole run, or needs data from elsewhere."""
    found = set()
    for module, name in imports(source):
        if module.split(".")[0] in ("subprocess", "multiprocessing") or module == "helpers.shared_data":
            found.add(module)
        if name in WHOLE_RUNS and (module == "fedaux" or module.startswith("fedaux.experiments")):
            found.add(f"{module}.{name}")
    return found


def test_every_module_has_its_twin() -> None:
    assert modules() - twins() - set(WITHOUT_TWIN) == set()


def test_every_unit_test_has_its_module() -> None:
    assert twins() - modules() == set()


def test_exceptions_are_modules_without_a_twin_and_have_a_reason() -> None:
    assert set(WITHOUT_TWIN) <= modules() - twins()
    assert all(WITHOUT_TWIN.values())


def test_unit_tests_start_no_process_and_train_no_run() -> None:
    found = {path.relative_to(UNIT).as_posix(): misplaced(path.read_text("utf-8")) for path in UNIT.rglob("*.py")}
    assert {name: what for name, what in found.items() if what} == {}


def test_what_is_misplaced_would_be_found() -> None:
    assert misplaced("import subprocess") == {"subprocess"}
    assert misplaced("def test():\n    from fedaux import Config, run") == {"fedaux.run"}
    assert misplaced("from fedaux.experiments.sweeps.engine import compare") == {
        "fedaux.experiments.sweeps.engine.compare"
    }
    assert misplaced("from fedaux.algorithms.loop import run\nfrom fedaux import Config") == set()


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
        "kill_points",
        "lone_node",
        "memory_probe",
        "slow_training",
    }  # run by name, in processes of their own
    for path in (TESTS / "helpers").glob("*.py"):
        assert path.stem in {"__init__", *programs} or {f"helpers.{path.stem}", path.stem} & used, path.name

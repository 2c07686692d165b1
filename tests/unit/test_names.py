"""One meaning per name: a public name is defined at the top of one module only."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "fedaux"
# what users start from: copied, never imported
TEMPLATES = PACKAGE / "config" / "templates"

# Names that mean the same wherever they are.
ROLES = {
    "T": "a type variable",
    "M": "a type variable",
    "log": "a module's logger",
    "app": "a module's commands, or its app of Flower",
    "main": "what a module does as a program",
    "POLL_INTERVAL": "seconds between two looks, of each loop that waits",
    # the two scorers with noise that depends on the size of a sum
    "sensitivity": "of a scorer's sums, by its own proof",
    # `fedaux.sources.register` and `fedaux.models.register`, as users write them
    "register": "what a user's function is registered with",
    # the loop of a run, and what users call
    "run": "a whole run",
    # the training of an extractor, and what users call
    "pretrain": "P1",
}
# Functions that handle one order each: for Flower's messages, and for orders as such.
HANDLERS = {"flower/client_app.py", "client/handlers.py"}


def public_names(source: str) -> Iterator[str]:
    """The names that a module defines at its top: classes, functions, constants."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [
                target.id
                for assigned in node.targets
                for target in ast.walk(assigned)
                if isinstance(target, ast.Name)
            ]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def defined_twice(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """The public names that several modules define, but for roles; sources by path."""
    homes = defaultdict(list)
    for path, source in modules.items():
        # a command is called like the function that does its work
        if path.startswith("cli/"):
            continue
        for name in set(public_names(source)) - set(ROLES):
            homes[name].append(path)
    return {
        name: paths
        for name, paths in homes.items()
        if len(paths) > 1 and set(paths) != HANDLERS
    }


def test_a_public_name_has_one_meaning() -> None:
    modules = {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
        if TEMPLATES not in path.parents
    }
    assert defined_twice(modules) == {}


def test_a_second_meaning_would_be_found() -> None:
    first = "LOST = 'lost'\nlog = getLogger()\n_KINDS = {}\nclass Row: ..."
    second = "LOST, GONE = 3, 5\nlog = getLogger()\n_KINDS = {}\nRow: Any = dict"
    modules = {"privacy/account.py": first, "flower/federation.py": second}
    paths = list(modules)
    assert defined_twice(modules) == {"LOST": paths, "Row": paths}

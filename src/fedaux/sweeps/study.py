"""Studies that come with the package: sweeps over the bundled digits, ready to run, each with a title and its cost."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from fedaux.core.errors import unknown_name

FOLDER = Path(__file__).parent / "studies"


@dataclass(frozen=True)
class Study:
    """A file with a table `[sweep]`, and what that says of itself. Copy the file to make a study of your own."""

    name: str
    path: Path
    title: str
    about: str  # begins with the question that it answers
    minutes: float


def studies() -> dict[str, Study]:
    """By name. Only titles are read here: nothing heavy is imported to list them."""
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))["sweep"]
        found[path.stem] = Study(path.stem, path, table["title"], table["about"], float(table["minutes"]))
    return found


def study(name: str) -> Study:
    known = studies()
    if name not in known:
        raise unknown_name("study", name, known)
    return known[name]

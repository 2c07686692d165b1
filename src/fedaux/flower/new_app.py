"""`fedaux new`: a complete Flower app, which `flwr run` takes as it is."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically

_FILES = {
    "pyproject.toml": "pyproject.toml",
    "fedaux.toml": "fedaux.toml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
}


class NewAppError(FedauxError):
    """A name that no package can have, or a folder that is there already."""

    code = Exit.FOLDER


def write_app(folder: Path) -> list[Path]:
    """The files of an app named after its folder, which must be new or empty."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    module = name.replace("-", "_")
    if not module.isidentifier():
        raise NewAppError(
            f"Cannot name an app {folder.name!r}: it makes no name of a Python "
            "package. Begin it with a letter."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise NewAppError(
            f"Cannot write an app: {folder} is already there and not empty. Name a new "
            f"folder: `fedaux new {folder.name}-2`."
        )
    paths = []
    for file, template in {**_FILES, f"{module}.py": "module.py.txt"}.items():
        text = (files("fedaux.flower") / "templates" / template).read_text("utf-8")
        paths.append(folder / file)
        write_atomically(
            paths[-1], text.replace("NAME", name).replace("MODULE", module).encode()
        )
    return paths

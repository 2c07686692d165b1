"""Starter projects for `fedaux init`: a commented config and the files it needs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fedaux.core.errors import Exit, FedauxError, unknown_name
from fedaux.core.io import write_atomically

STARTERS = {
    "images": ("my images: a folder of them, and a folder of public ones", ("images.toml",)),
    "text": ("my text: a table with a column of texts, and one of public texts", ("text.toml",)),
    "model": ("my own model and data, in Python; runs as it is", ("model.toml", "my_model.py")),
}


class StarterError(FedauxError):
    """A file of the starter exists already."""

    code = Exit.FOLDER


def write_starter(kind: str, folder: Path) -> list[Path]:
    """Write the files of a starter into `folder`; existing files are not overwritten."""
    if kind not in STARTERS:
        raise unknown_name("kind of project", kind, STARTERS)
    paths = [folder / name for name in STARTERS[kind][1]]
    for path in paths:
        if path.exists():
            raise StarterError(f"{path} is already there; name another folder: `fedaux init {kind} FOLDER`.")
    for path in paths:
        write_atomically(path, (files("fedaux.config.templates") / path.name).read_bytes())
    return paths

"""Starter projects for `fedaux init`: a commented config and the files it needs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomlkit

from fedaux.config.toml import toml_value
from fedaux.core.errors import Exit, FedauxError, unknown_name
from fedaux.core.io import write_atomically

STARTERS = {  # the files of each
    "head": ("head.toml",),  # the private head on images: one exchange under ε
    "images": ("images.toml",),  # a folder of images, and a folder of public ones
    "table": ("table.toml", "schema.toml"),  # the same on a .csv, by its schema
    "text": ("text.toml",),  # a table with a column of texts, and one of public texts
    "model": ("model.toml", "my_model.py"),  # a model and data in Python; runs as it is
}
COMMENTS = 29  # the column in which comments of a template begin


class StarterError(FedauxError):
    """A file of the starter exists already."""

    code = Exit.FOLDER


def write_starter(
    kind: str,
    folder: Path,
    values: Mapping[str, Any] | None = None,
    contents: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the files of a starter into `folder`; existing files are not overwritten.
    `values` are those of the settings, by dotted key. `contents` takes the place of
    whole files.
    """
    if kind not in STARTERS:
        raise unknown_name("kind of project", kind, STARTERS)
    paths = [folder / name for name in STARTERS[kind]]
    for path in paths:
        if path.exists():
            raise StarterError(
                f"Cannot write {path}: it is already there. Name another folder: "
                f"`fedaux init {kind} FOLDER`."
            )
    for path in paths:
        text = (files("fedaux.config.templates") / path.name).read_text("utf-8")
        if values and path == paths[0]:
            text = fill(text, values)
        text = (contents or {}).get(path.name, text)
        write_atomically(path, text.encode())
    return paths


def fill(template: str, values: Mapping[str, Any]) -> str:
    """A TOML template with other values for some of its keys, by dotted key; comments
    stay.
    """
    document = tomlkit.parse(template)
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        holder: Any = document[table] if table else document
        assert name in holder, f"the template does not have {key}"
        text = toml_value(value)
        holder[name] = tomlkit.value(text)
        comment = holder.item(name).trivia.comment
        holder.item(name).trivia.comment = comment.replace(f"or {text}: ", "", 1)
        if comment:
            holder.item(name).trivia.comment_ws = " " * max(
                1, COMMENTS - len(f"{name} = {text}")
            )
    return tomlkit.dumps(document)

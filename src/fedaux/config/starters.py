"""Starter projects for `fedaux init`: a commented config and the files it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedaux.config.toml import toml_value
from fedaux.core.errors import Exit, FedauxError, unknown_name
from fedaux.core.io import write_atomically

STARTERS = {  # the files of each
    "images": ("images.toml",),  # a folder of images, and a folder of public ones
    "text": ("text.toml",),  # a table with a column of texts, and one of public texts
    "model": ("model.toml", "my_model.py"),  # a model and data in Python; runs as it is
}
COMMENTS = 29  # the column in which comments of a template begin


class StarterError(FedauxError):
    """A file of the starter exists already."""

    code = Exit.FOLDER


def write_starter(kind: str, folder: Path, values: Mapping[str, Any] | None = None) -> list[Path]:
    """Write the files of a starter into `folder`; existing files are not overwritten. `values` are by dotted key."""
    if kind not in STARTERS:
        raise unknown_name("kind of project", kind, STARTERS)
    paths = [folder / name for name in STARTERS[kind]]
    for path in paths:
        if path.exists():
            raise StarterError(f"{path} is already there; name another folder: `fedaux init {kind} FOLDER`.")
    for path in paths:
        text = (files("fedaux.config.templates") / path.name).read_text("utf-8")
        write_atomically(path, (fill(text, values) if values and path.suffix == ".toml" else text).encode())
    return paths


def fill(template: str, values: Mapping[str, Any]) -> str:
    """A TOML template with other values for some of its keys; comments stay."""
    table, lines, missing = "", [], dict(values)
    for line in template.splitlines():
        if header := re.match(r"\[([\w.]+)\]", line):
            table = f"{header[1]}."
        setting = re.match(r"(\w+) = (.*?)(\s*)(#.*)?$", line)
        key = f"{table}{setting[1]}" if setting else ""
        if setting and key in missing:
            text = f"{setting[1]} = {toml_value(missing.pop(key))}"
            comment = f"{' ' * max(1, COMMENTS - len(text))}{setting[4]}" if setting[4] else ""
            line = f"{text}{comment}"
        lines.append(line)
    assert not missing, f"the template does not have {', '.join(missing)}"
    return "\n".join(lines) + "\n"

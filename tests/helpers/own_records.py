"""A site's own records in every format: what the tests of declared classes and of
persons write and read back.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fedaux.config.schema import Config
from fedaux.data.federated import open_private
from fedaux.data.records import Records

CLASSES = ("flu", "cold", "none")


class Row(NamedTuple):
    label: str | None
    text: str | None = "words"
    person: str | None = None


def site(
    source: str,
    path: Path | str = "",
    classes: tuple[str, ...] = CLASSES,
    person: str = "",
    options: Mapping[str, Any] | None = None,
) -> Config:
    """The settings of a site."""
    data = {
        "source": source,
        "path": str(path),
        "classes": classes,
        "person": person,
        "options": dict(options or {}),
    }
    return Config.from_dict(
        {
            "data": {**data, "partition": "own"},
            "aux": {"source": "digits"},
            "federation": {"sites": ["a"]},
        }
    )


def records(config: Config) -> Records:
    return open_private(config, "a")[0]


def write_table(kind: str, folder: Path, rows: list[Row]) -> Path:
    file = folder / f"records.{kind}"
    if kind == "csv":
        with file.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([Row._fields, *rows])
    elif kind == "jsonl":
        file.write_text(
            "".join(f"{json.dumps(row._asdict())}\n" for row in rows), "utf-8"
        )
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {
            name: pa.array([getattr(row, name) for row in rows], pa.string())
            for name in Row._fields
        }
        pq.write_table(pa.table(columns), file)
    return file


def write_arrays(kind: str, folder: Path, labels: Any, persons: Any = None) -> Path:
    arrays = {
        "x": np.arange(2 * len(labels), dtype=np.float32).reshape(-1, 2),
        "y": np.array(labels),
    }
    if persons is not None:
        arrays["patient"] = np.array(persons)
    if kind == "npz":
        np.savez(folder / "records.npz", **arrays)
        return folder / "records.npz"
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def write_images(folder: Path, files: list[str]) -> Path:
    """Grey images, each of another shade: its place in the list."""
    for shade, name in enumerate(files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), shade, np.uint8)).save(folder / name)
    return folder


def shades(found: Records) -> list[int]:
    """Which image each record is."""
    return found.gather()[:, 0, 0, 0].tolist()


def groups(names: list[str]) -> list[int]:
    """Numbers in the order of first appearance, the plain way."""
    return [list(dict.fromkeys(names)).index(name) for name in names]


def together(persons: np.ndarray, without: int) -> list[list[bool]]:
    """Which of the other records belong to one person."""
    kept = np.delete(persons, without)
    same: list[list[bool]] = (kept[:, None] == kept).tolist()
    return same

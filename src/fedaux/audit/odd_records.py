"""Synthetic records in the formats of the built-in sources, of which the first may be
an odd one.

Records are made up, but written as a site's settings say: its columns, its sizes, its
classes.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedaux.audit.result import AttackSkipped
from fedaux.core.errors import install_command
from fedaux.data.table_schema import Column, TableSchema
from fedaux.data.tables import open_schema

RECORDS_PER_FILE = 24
TABLE_FILE = "table.csv"
WORDS = (
    "a",
    "fever",
    "that",
    "went",
    "away",
    "after",
    "some",
    "days",
    "and",
    "came",
    "back",
)
ODD_TEXTS: dict[str, dict[str, Any]] = {
    "a missing label": {"label": None},
    "an undeclared label": {"label": "no such class"},
    "a nested value": {"text": {"a": [1]}, "label": ["x"]},
    "no text": {"text": None},
    "a long text": {"text": "word " * 20_000},
}
# (label, all other values) of a table; None: as it was
ODD_CELLS: dict[str, tuple[str | None, str | None]] = {
    "a missing label": ("", None),
    "an undeclared label": ("no such class", None),
    "nothing but a label": (None, ""),
    "words for numbers": (None, "no such value"),
    "a number of a million digits": (None, "9" * 1_000_000),
}
ODD_LINES = {
    "bytes that are no text": b"\xff\xfe\x00\xc3\x28",
    "a quote that never closes": b'"never closed',
}
# (folder, content); "": that of the record's class, None: a proper image
ODD_IMAGES: dict[str, tuple[str, bytes | None]] = {
    "an empty file": ("", b""),
    "no image": ("", b"no image"),
    "a folder of no class": ("no such class", None),
    "a folder called train": ("train", None),
    "a folder called test": ("test", None),
    "no folder": (".", None),
}
# (all of x, the label); None: as it was
ODD_ARRAYS: dict[str, tuple[float | None, Any]] = {
    "not a number": (float("nan"), None),
    "infinite": (float("inf"), None),
    "a negative label": (None, -7),
    "a label that is too large": (None, 10**6),
    "a label that is not a number": (None, float("nan")),
    "a label in words": (None, "no such class"),
}


@dataclass(frozen=True)
class Layout:
    """How a site's records are written: `person` is the name of the column that tells
    persons apart, or "", and `options` are the source's.
    """

    classes: tuple[str, ...]
    person: str
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: str

    def label(self, index: int) -> str:
        return self.classes[index % len(self.classes)]


# (layout, empty folder, name of an odd record or "") → data.path
Write = Callable[[Layout, Path, str], str]


@dataclass(frozen=True)
class Format:
    """The names of the odd records that a source's format can hold, and how records are
    written in it.
    """

    odd: Sequence[str]
    write: Write


# tables


def text_rows(layout: Layout, odd: str) -> list[dict[str, Any]]:
    """Text, label and person of each record. Two records in a row are one person's."""
    rows: list[dict[str, Any]] = []
    for index in range(RECORDS_PER_FILE):
        length = 1 + index % len(WORDS)
        row = {
            "text": " ".join(WORDS[:length]),
            "label": layout.label(index),
            "person": f"p{index // 2}",
        }
        rows.append(row)
    rows[0] |= ODD_TEXTS.get(odd, {})
    return rows


def table_rows(layout: Layout, odd: str) -> list[dict[str, Any]]:
    """The same under the columns that the settings name."""
    text_columns = layout.options.get("text", "text")
    if isinstance(text_columns, str):
        text_columns = [text_columns]
    label_column = layout.options.get("label", "label")
    table = []
    for row in text_rows(layout, odd):
        fields = dict.fromkeys(text_columns, row["text"])
        fields[label_column] = row["label"]
        if layout.person:
            fields[layout.person] = row["person"]
        table.append(fields)
    return table


def write_csv(layout: Layout, folder: Path, odd: str) -> str:
    rows = table_rows(layout, odd)
    columns = list(layout.options.get("columns", ()))
    has_header = not columns
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, columns or list(rows[0]), restval="", lineterminator="\n"
    )
    if has_header:
        writer.writeheader()
    writer.writerows(rows)
    lines = stream.getvalue().encode("utf-8", "surrogatepass").split(b"\n")
    first_record = 1 if has_header else 0
    lines[first_record] = ODD_LINES.get(odd, lines[first_record])
    return _write_lines(folder / TABLE_FILE, lines)


def write_jsonl(layout: Layout, folder: Path, odd: str) -> str:
    lines = [json.dumps(row).encode() for row in table_rows(layout, odd)]
    lines[0] = ODD_LINES.get(odd, lines[0])
    return _write_lines(folder / "table.jsonl", [*lines, b""])


def _write_lines(path: Path, lines: Sequence[bytes]) -> str:
    path.write_bytes(b"\n".join(lines))
    return str(path)


def write_parquet(layout: Layout, folder: Path, odd: str) -> str:
    return _write_parquet(table_rows(layout, odd), folder, odd)


def _write_parquet(rows: Sequence[Mapping[str, Any]], folder: Path, odd: str) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {}
    for name in rows[0]:
        values = [_text_bytes(row[name]) for row in rows]
        if odd in ODD_LINES:
            values[0] = ODD_LINES[odd]
        columns[name] = unchecked_texts(values)
    path = folder / "table.parquet"
    parquet.write_table(pa.table(columns), path)
    return str(path)


def _text_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return str(value).encode("utf-8", "surrogatepass")


def unchecked_texts(values: Sequence[bytes | None]) -> Any:
    """An Arrow column of texts whose bytes need not be UTF-8."""
    import pyarrow as pa

    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _schema_of(layout: Layout) -> TableSchema:
    """The site's schema, with the marks of the file that is written."""
    return open_schema(layout.options.get("schema", "")).for_file(Path(TABLE_FILE))


def described_rows(layout: Layout, odd: str) -> list[dict[str, Any]]:
    """Values of every column within what the site's schema says, but of an odd
    record.
    """
    schema = _schema_of(layout)
    header = schema.header
    table = []
    for index in range(RECORDS_PER_FILE):
        row: dict[str, Any] = {header.label or "label": layout.label(index)}
        for name, column in schema.columns.items():
            row[name] = _table_value(column, index, header.decimal)
        if layout.person:
            row[layout.person] = f"p{index // 2}"
        table.append(row)
    odd_label, odd_value = ODD_CELLS.get(odd, (None, None))
    if odd_label is not None:
        table[0][header.label or "label"] = odd_label
    if odd_value is not None:
        table[0] |= dict.fromkeys(schema.columns, odd_value)
    return table


def write_table(layout: Layout, folder: Path, odd: str) -> str:
    """A .csv as the site's schema describes it."""
    header = _schema_of(layout).header
    table = described_rows(layout, odd)
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, list(table[0]), delimiter=header.delimiter, lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(table)
    lines = stream.getvalue().encode(header.encoding, "replace").split(b"\n")
    lines[1] = ODD_LINES.get(odd, lines[1])
    return _write_lines(folder / TABLE_FILE, lines)


def write_parquet_table(layout: Layout, folder: Path, odd: str) -> str:
    """The same as a .parquet whose columns are texts, which hold any odd value."""
    return _write_parquet(described_rows(layout, odd), folder, odd)


def _table_value(column: Column, index: int, decimal: str) -> str:
    """One of twelve numbers of the range, or one of the values."""
    if column.kind != "number":
        return column.values[index % len(column.values)]
    low, high = column.range
    share = index % 12 / 11
    return repr(low + share * (high - low)).replace(".", decimal)


# images


def write_images(layout: Layout, folder: Path, odd: str) -> str:
    """Image i has a shade of its own. Its name has a person in it, should the settings
    look for one.
    """
    root = folder / "images"
    split = root / layout.options.get("split", "")
    for index in range(RECORDS_PER_FILE):
        class_folder = layout.label(index)
        content: bytes | None = None
        if odd and index == 0:
            odd_folder, content = ODD_IMAGES[odd]
            class_folder = odd_folder or class_folder
        file = split / class_folder / f"patient{index // 2}_{index:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            rng = np.random.default_rng(index)
            pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(file)
        else:
            file.write_bytes(content)
    return str(root)


# arrays


def record_arrays(layout: Layout, odd: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(RECORDS_PER_FILE, *layout.shape)).astype(layout.dtype)
    if layout.dtype == "uint8":
        x = rng.integers(0, 256, x.shape, dtype=np.uint8)
    labels: list[Any] = [
        index % len(layout.classes) for index in range(RECORDS_PER_FILE)
    ]
    odd_value, odd_label = ODD_ARRAYS.get(odd, (None, None))
    if odd_value is not None and x.dtype.kind == "f":
        x[0] = odd_value
    if odd_label is not None:
        labels[0] = odd_label
    arrays = {"x": x, "y": np.array(labels)}
    if layout.person:
        arrays[layout.person] = np.arange(RECORDS_PER_FILE) // 2
    return arrays


def write_npy(layout: Layout, folder: Path, odd: str) -> str:
    for name, array in record_arrays(layout, odd).items():
        np.save(folder / f"{name}.npy", array)
    return str(folder)


def write_npz(layout: Layout, folder: Path, odd: str) -> str:
    path = folder / "records.npz"
    np.savez(path, **record_arrays(layout, odd))
    return str(path)


# Hugging Face


def write_huggingface(layout: Layout, folder: Path, odd: str) -> str:
    """Texts, or numbers of the site's shape, under the columns that the settings name;
    labels in words.
    """
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise AttackSkipped(
            f"datasets is not installed. Run {install_command('datasets')}."
        ) from error
    rows = text_rows(layout, odd)
    record_column = "text"
    records: list[Any] = [_text_or_none(row["text"]) for row in rows]
    if layout.shape:
        record_column = "x"
        numbers = np.random.default_rng(0).normal(
            size=(RECORDS_PER_FILE, *layout.shape)
        )
        for index, values in enumerate(numbers.tolist()):
            if records[index] is not None:
                records[index] = values
    record_column = layout.options.get("record") or record_column
    label_column = layout.options.get("label") or "label"
    columns = {
        record_column: records,
        label_column: [_text_or_none(row["label"]) for row in rows],
    }
    if layout.person:
        columns[layout.person] = [row["person"] for row in rows]
    datasets.disable_progress_bars()
    path = folder / "saved"
    datasets.Dataset.from_dict(columns).save_to_disk(str(path))
    return str(path)


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


FORMATS: Mapping[str, Format] = {
    "csv": Format([*ODD_TEXTS, *ODD_LINES], write_csv),
    "jsonl": Format([*ODD_TEXTS, *ODD_LINES], write_jsonl),
    "parquet": Format([*ODD_TEXTS, *ODD_LINES], write_parquet),
    "table": Format([*ODD_CELLS, *ODD_LINES], write_table),
    "table in parquet": Format([*ODD_CELLS, *ODD_LINES], write_parquet_table),
    "images": Format(list(ODD_IMAGES), write_images),
    "npy": Format(list(ODD_ARRAYS), write_npy),
    "npz": Format(list(ODD_ARRAYS), write_npz),
    "huggingface": Format(list(ODD_TEXTS), write_huggingface),
}

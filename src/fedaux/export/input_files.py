"""Records to classify, read from files in blocks: images, arrays and texts, each with a
readable name.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fedaux.core.errors import FedauxError
from fedaux.data.image_folders import SUFFIXES, list_images
from fedaux.data.images import MODE_OF_CHANNELS, UNREADABLE
from fedaux.data.records import RecordsError, RecordSpec
from fedaux.data.sources import open_source
from fedaux.data.table_schema import TableSchema
from fedaux.data.tables import column_of, table

READ_AT_ONCE = 512  # records in memory at a time
ARRAYS = (".npy", ".npz")
TABLES = (".csv", ".jsonl", ".parquet")
SCHEMA_TABLES = (".csv", ".parquet")  # that a schema describes
TAKES = {
    "image": "image files, folders of them, .npy or .npz",
    "numbers": ".npy or .npz",
    "text": ".csv, .jsonl, .parquet or .txt, one text a row",
}

NamedBlock = tuple[list[str], Any]  # names and records


class UnreadableError(RecordsError):
    """A file that is no image, or a damaged one."""


@dataclass(frozen=True)
class InputReader:
    """Reads files for a model. `resize` allows resizing images, `column` is the text
    column of a table. A model of a table has a `schema`, and `id_column` may name its
    records.

    Images of a folder that cannot be read are left out and collected in `skipped`.
    `strict` stops at the first.
    """

    record_spec: RecordSpec
    resize: bool = False
    column: str | Sequence[str] = "text"
    strict: bool = False
    schema: TableSchema | None = None
    id_column: str = ""
    skipped: list[Path] = field(default_factory=list, compare=False)

    def blocks(self, paths: Iterable[Path]) -> Iterator[NamedBlock]:
        """Yield all records of all files; missing or unsupported files raise an error
        before anything is read.
        """
        readers = [(path, self._reader(path)) for path in paths]
        for path, read in readers:
            try:
                yield from read(path)
            except FedauxError:
                raise
            except (ValueError, EOFError, csv.Error, zipfile.BadZipFile) as error:
                raise RecordsError(
                    f"Cannot read {path}: {str(error).rstrip('.')}. Correct the file, "
                    "or name another one."
                ) from error

    def total(self, paths: Iterable[Path]) -> int | None:
        """How many records there are, or None where only reading tells."""
        total = 0
        for path in paths:
            if path.is_dir():
                total += len(list_images(path))
            elif suffix_of(path) in SUFFIXES:
                total += 1
            else:
                return None
        return total

    def _reader(self, path: Path) -> Callable[[Path], Iterator[NamedBlock]]:
        if not path.exists():
            raise RecordsError(
                f"Cannot read records: there is no file or folder {path}. Give "
                f"{TAKES[self.record_spec.kind]}."
            )
        kind = self.record_spec.kind
        suffix = suffix_of(path)
        if kind != "text" and path.is_file() and suffix in ARRAYS:
            return self._arrays
        if kind == "image" and (path.is_dir() or suffix in SUFFIXES):
            return self._images
        if kind == "text" and path.is_file() and suffix in (*TABLES, ".txt"):
            return self._texts
        takes = TAKES[kind]
        if self.schema is not None:
            if path.is_file() and suffix in SCHEMA_TABLES:
                return self._table
            takes = (
                f".csv or .parquet with the columns {', '.join(self.schema.columns)}"
            )
        raise RecordsError(
            f"Cannot read {path}: this model takes {self.record_spec.description}. "
            f"Give {takes}."
        )

    def _images(self, path: Path) -> Iterator[NamedBlock]:
        files = list_images(path) if path.is_dir() else [path]
        if not files:
            raise RecordsError(
                f"Cannot read {path}: there is not one image in it. Give files that "
                f"end in {', '.join(sorted(SUFFIXES))}."
            )
        yield from self.images(files, strict=self.strict or not path.is_dir())

    def images(
        self, files: Sequence[Path], strict: bool = False
    ) -> Iterator[NamedBlock]:
        """These files in blocks. Names are their paths."""
        for start in range(0, len(files), READ_AT_ONCE):
            names = []
            images = []
            for file in files[start : start + READ_AT_ONCE]:
                try:
                    images.append(self._image(file))
                    names.append(str(file))
                except UnreadableError:
                    if strict:
                        raise
                    self.skipped.append(file)
            if names:
                yield names, np.stack(images)

    def _image(self, file: Path) -> NDArray[np.uint8]:
        """(H, W, C) as in training: colours converted. With `resize`, cropped and
        resized with a box filter.
        """
        height, width, channels = self.record_spec.shape
        if channels not in MODE_OF_CHANNELS:
            raise RecordsError(
                f"Cannot read {file}: this model takes images of {channels} channels, "
                "which only arrays have. Give an .npy file."
            )
        try:
            with Image.open(file) as opened:
                image: Image.Image = opened.convert(MODE_OF_CHANNELS[channels])
        except UNREADABLE as error:
            message = (
                f"Cannot read {file} as an image: {str(error).rstrip('.')}. Give "
                "another file, or leave it out."
            )
            raise UnreadableError(message) from error
        if image.size != (width, height):
            if not self.resize:
                size = f"{image.width}×{image.height}"
                raise RecordsError(
                    f"Cannot read {file}: it has {size} pixels, and this model takes "
                    f"{width}×{height}. Use --resize to make it fit."
                )
            image = ImageOps.fit(image, (width, height), Image.Resampling.BOX)
        return np.asarray(image, dtype=np.uint8).reshape(self.record_spec.shape)

    def _arrays(self, path: Path) -> Iterator[NamedBlock]:
        records = _array(path)
        shape = self.record_spec.shape
        are_images = self.record_spec.kind == "image" and records.dtype == np.uint8
        if are_images and records.shape[1:] == shape[:2]:
            records = records[..., None]  # greyscale images without a channel axis
        if records.ndim == 0 or records.shape[1:] != shape:
            self.record_spec.validate(records)  # raises with the reason
        yield from _numbered(path, records)

    def _texts(self, path: Path) -> Iterator[NamedBlock]:
        suffix = suffix_of(path)
        if suffix == ".txt":
            lines = path.read_text("utf-8").splitlines()
            yield from _numbered(path, [line for line in lines if line.strip()])
            return
        texts = open_source(suffix[1:], path, text=self.column, label="")
        yield from _numbered(path, list(texts.train.x))

    def _table(self, path: Path) -> Iterator[NamedBlock]:
        """A table with the columns of the training records, encoded by their schema."""
        assert self.schema is not None
        records = table(path, self.schema, labels=False).train.x
        if not self.id_column:
            yield from _numbered(path, records)
            return
        names = column_of(path, self.schema, self.id_column)
        for start in range(0, len(records), READ_AT_ONCE):
            block = slice(start, start + READ_AT_ONCE)
            yield names[block], records[block]


def _numbered(path: Path, records: Any) -> Iterator[NamedBlock]:
    for start in range(0, len(records), READ_AT_ONCE):
        block = records[start : start + READ_AT_ONCE]
        numbers = range(start, start + len(block))
        yield [f"{path}[{number}]" for number in numbers], block


def suffix_of(path: Path) -> str:
    """`.csv` of `a.csv` and of `a.csv.gz`."""
    if path.suffix.lower() == ".gz":
        path = path.with_suffix("")
    return path.suffix.lower()


def _array(path: Path) -> NDArray[Any]:
    """The array of an .npy, memory-mapped. Of an .npz the array x, or the only one."""
    if path.suffix.lower() == ".npy":
        mapped: NDArray[Any] = np.load(path, mmap_mode="r")
        return mapped
    with np.load(path) as archive:
        names = list(archive.files)
        if len(names) != 1 and "x" not in names:
            raise RecordsError(
                f"Cannot read {path}: it has arrays {', '.join(names)}. Call the one "
                "to be classified x."
            )
        name = "x" if "x" in names else names[0]
        array: NDArray[Any] = archive[name]
        return array

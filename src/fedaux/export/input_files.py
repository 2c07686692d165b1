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
from fedaux.data.images import SUFFIXES, UNREADABLE, list_images
from fedaux.data.records import RecordsError, RecordSpec
from fedaux.data.sources import open_source

BLOCK = 512  # records in memory at a time
ARRAYS = (".npy", ".npz")
TABLES = (".csv", ".jsonl", ".parquet")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
TAKES = {
    "image": "image files, folders of them, .npy or .npz",
    "numbers": ".npy or .npz",
    "text": ".csv, .jsonl, .parquet or .txt, one text a row",
}

Block = tuple[list[str], Any]  # names and records


class UnreadableError(RecordsError):
    """A file that is no image, or a damaged one."""


@dataclass(frozen=True)
class InputReader:
    """Reads files for a model; `resize` allows resizing images, `column` is the text
    column of a table.

    Images of a folder that cannot be read are left out and collected in `skipped`;
    `strict` stops at the first.
    """

    record_spec: RecordSpec
    resize: bool = False
    column: str | Sequence[str] = "text"
    strict: bool = False
    skipped: list[Path] = field(default_factory=list, compare=False)

    def blocks(self, paths: Iterable[Path]) -> Iterator[Block]:
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
                raise RecordsError(f"{path} cannot be read: {error}") from error

    def total(self, paths: Iterable[Path]) -> int | None:
        """How many records there are; None where only reading tells."""
        counts = [self._count(path) for path in paths]
        return None if None in counts else sum(count or 0 for count in counts)

    def _count(self, path: Path) -> int | None:
        if path.is_dir():
            return len(list_images(path))
        return 1 if suffix_of(path) in SUFFIXES else None

    def _reader(self, path: Path) -> Callable[[Path], Iterator[Block]]:
        if not path.exists():
            raise RecordsError(
                f"there is no file or folder {path}; give "
                f"{TAKES[self.record_spec.kind]}"
            )
        suffix = suffix_of(path)
        if suffix in ARRAYS and path.is_file() and self.record_spec.kind != "text":
            return self._arrays
        if self.record_spec.kind == "image" and (path.is_dir() or suffix in SUFFIXES):
            return self._images
        if (
            self.record_spec.kind == "text"
            and path.is_file()
            and (suffix in TABLES or suffix == ".txt")
        ):
            return self._texts
        raise RecordsError(
            f"{path}: this model takes {self.record_spec.description}; give "
            f"{TAKES[self.record_spec.kind]}"
        )

    def _images(self, path: Path) -> Iterator[Block]:
        files = list_images(path) if path.is_dir() else [path]
        if not files:
            raise RecordsError(
                f"there is not one image in {path}; the endings known are "
                f"{', '.join(sorted(SUFFIXES))}"
            )
        yield from self.images(files, strict=self.strict or not path.is_dir())

    def images(self, files: Sequence[Path], strict: bool = False) -> Iterator[Block]:
        """These files in blocks; names are their paths."""
        for start in range(0, len(files), BLOCK):
            names, images = [], []
            for file in files[start : start + BLOCK]:
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
        """(H, W, C) as in training: colours converted; with `resize`, cropped and
        resized with a box filter.
        """
        height, width, channels = self.record_spec.shape
        if channels not in MODES:
            raise RecordsError(
                f"{file}: this model takes images of {channels} channels, which only "
                "arrays (.npy) have"
            )
        try:
            with Image.open(file) as opened:
                image: Image.Image = opened.convert(MODES[channels])
        except UNREADABLE as error:
            raise UnreadableError(
                f"{file} cannot be read as an image ({error})"
            ) from error
        if image.size != (width, height):
            if not self.resize:
                size = f"{image.width}×{image.height}"
                raise RecordsError(
                    f"{file} has {size} pixels, this model takes {width}×{height}; "
                    "--resize makes it fit"
                )
            image = ImageOps.fit(image, (width, height), Image.Resampling.BOX)
        return np.asarray(image, dtype=np.uint8).reshape(self.record_spec.shape)

    def _arrays(self, path: Path) -> Iterator[Block]:
        x = _array(path)
        if (
            self.record_spec.kind == "image"
            and x.dtype == np.uint8
            and x.shape[1:] == self.record_spec.shape[:2]
        ):
            x = x[..., None]  # greyscale images without a channel axis
        if x.ndim == 0 or x.shape[1:] != self.record_spec.shape:
            self.record_spec.validate(x)  # raises with the reason
        yield from _numbered(path, x)

    def _texts(self, path: Path) -> Iterator[Block]:
        if suffix_of(path) == ".txt":
            texts = [
                line for line in path.read_text("utf-8").splitlines() if line.strip()
            ]
        else:
            texts = list(
                open_source(
                    suffix_of(path)[1:], path, text=self.column, label=""
                ).train.x
            )
        yield from _numbered(path, texts)


def _numbered(path: Path, records: Any) -> Iterator[Block]:
    for start in range(0, len(records), BLOCK):
        block = records[start : start + BLOCK]
        yield [f"{path}[{start + index}]" for index in range(len(block))], block


def suffix_of(path: Path) -> str:
    """`.csv` of `a.csv` and of `a.csv.gz`."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _array(path: Path) -> NDArray[Any]:
    """The array of an .npy, memory-mapped; of an .npz the array x, or the only one."""
    if path.suffix.lower() == ".npy":
        mapped: NDArray[Any] = np.load(path, mmap_mode="r")
        return mapped
    with np.load(path) as archive:
        names = list(archive.files)
        if "x" not in names and len(names) != 1:
            raise RecordsError(
                f"{path} has arrays {', '.join(names)}; call the one to be classified x"
            )
        array: NDArray[Any] = archive["x" if "x" in names else names[0]]
        return array

"""Folders of image files, one record per file. Pixels are cached; labels and persons are read from the paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fedaux.data.arrays import Block, convert, require_file
from fedaux.data.persons import persons_from_paths
from fedaux.data.records import UNDECLARED, Corpus, Records

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}


def image_folder(
    path: Path,
    size: int | None = None,
    mode: str = "RGB",
    classes: Sequence[str] = (),
    person: str = "",
    declared: Sequence[str] = (),
) -> Corpus:
    """A folder with a sub-folder of images for each class, or of unlabelled images; or `train` and `test` of this kind.

    `size` crops and resizes each image to that square; without it all must have the same size. `mode="L"` converts them
    to greyscale. `classes` names the sub-folders in order. `person` is a regular expression over an image's path: the
    person is its first group, or the whole match. With `declared` classes every image below the folder is a record; its
    label is that of its sub-folder, `UNDECLARED` if that is no class.
    """
    root = find_subfolder(require_file(path, "your own images"), "train")
    names = list(declared) or _class_folders(root, classes)
    position = {name: label for label, name in enumerate(names)}

    def labelled_files(folder: Path) -> Mapping[Path, int | None]:
        if declared:
            return {file: position.get(file.relative_to(folder).parts[0], UNDECLARED) for file in list_images(folder)}
        if not names:
            return dict.fromkeys(list_images(folder))
        return {file: label for label, name in enumerate(names) for file in list_images(folder / name)}

    train = labelled_files(root)
    if not train:
        raise ValueError(f"{root} holds no image; put them there, labelled ones in a sub-folder for each class")
    test = labelled_files(path / "test") if root != path and not declared else {}
    corpus = image_files("images", train, test, names, size, mode)
    ids = persons_from_paths(person, list(train), root) if person else None
    return replace(corpus, train=replace(corpus.train, person=ids))


def _class_folders(root: Path, classes: Sequence[str]) -> list[str]:
    folders = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    if classes and not set(folders) <= set(classes):
        raise ValueError(f"{root} has folders {folders}, which are not all among the classes {list(classes)}")
    return list(classes) if classes and folders else folders


def image_files(
    kind: str,
    train: Mapping[Path, int | None],
    test: Mapping[Path, int | None],
    classes: Sequence[str],
    size: int | None,
    mode: str,
) -> Corpus:
    """The corpus of image files with their labels."""

    def read(file: Path) -> Iterator[Block]:
        with Image.open(file) as image:
            yield crop_and_resize(image, size, mode)[None], None

    corpus = convert(kind, read, list(train), list(test), options=(size, mode))
    test_records = None if corpus.test is None else _with_labels(corpus.test, test)
    return Corpus(_with_labels(corpus.train, train), test_records, tuple(classes))


def _with_labels(records: Records, files: Mapping[Path, int | None]) -> Records:
    labels = [label for label in files.values() if label is not None]
    return replace(records, y=np.array(labels, dtype=np.int64) if labels else None)


def crop_and_resize(image: Image.Image, size: int | None, mode: str) -> NDArray[np.uint8]:
    """(H, W, C), or the central square resized to (size, size, C) with a box filter."""
    image = image.convert(mode)
    x = np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BOX) if size else image)
    return x.reshape(*x.shape[:2], -1)


def find_subfolder(path: Path, *names: str) -> Path:
    """The first of these sub-folders that exists, else `path` itself."""
    return next((path / name for name in names if (path / name).is_dir()), path)


def list_images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)

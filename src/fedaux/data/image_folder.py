"""Folders of image files, each file a record; what is cached are pixels, labels and persons come from the paths."""

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
    """A folder of images: sub-folders are classes, a flat one is unlabelled; or two such folders, `train` and `test`.

    `size` crops and shrinks each image to that square; without it all must be alike. `mode="L"` makes them grey.
    `classes` names the sub-folders in order. `person` is a regular expression: its first group in an image's path, or
    all that it matches, is the person. With `declared` classes every image below the folder is a record, and its label
    is that of the sub-folder it is in, −1 outside of them.
    """
    root = find_subfolder(require_file(path, "your own images"), "train")
    names = list(declared) or _class_folders(root, classes)
    place = {name: label for label, name in enumerate(names)}

    def listing(folder: Path) -> Mapping[Path, int | None]:
        if declared:
            return {file: place.get(file.relative_to(folder).parts[0], UNDECLARED) for file in list_images(folder)}
        if not names:
            return dict.fromkeys(list_images(folder))
        return {file: label for label, name in enumerate(names) for file in list_images(folder / name)}

    train = listing(root)
    if not train:
        raise ValueError(f"{root} holds no image; put them there, labelled ones in a sub-folder for each class")
    test = listing(path / "test") if root != path and not declared else {}
    corpus = image_files("images", train, test, names, size, mode)
    return replace(
        corpus, train=replace(corpus.train, person=persons_from_paths(person, list(train), root) if person else None)
    )


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
    """The corpus of image files, each with its label."""

    def read(file: Path) -> Iterator[Block]:
        with Image.open(file) as image:
            yield crop_and_resize(image, size, mode)[None], None

    corpus = convert(kind, read, list(train), list(test), options=(size, mode))
    tested = None if corpus.test is None else _labelled(corpus.test, test)
    return Corpus(_labelled(corpus.train, train), tested, tuple(classes))


def _labelled(records: Records, labels: Mapping[Path, int | None]) -> Records:
    known = [label for label in labels.values() if label is not None]
    return replace(records, y=np.array(known, dtype=np.int64) if known else None)


def crop_and_resize(image: Image.Image, size: int | None, mode: str) -> NDArray[np.uint8]:
    """(H, W, C), or the central square shrunk to (size, size, C) by a box filter."""
    image = image.convert(mode)
    x = np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BOX) if size else image)
    return x.reshape(*x.shape[:2], -1)


def find_subfolder(path: Path, *inner: str) -> Path:
    """The unpacked folder, whether `path` is it or holds it."""
    return next((path / name for name in inner if (path / name).is_dir()), path)


def list_images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)

"""Folders of image files, one record per file. Pixels are cached; labels and persons are read from the paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fedaux.config.parsing import ConfigError, require
from fedaux.data.arrays import Block, convert, require_file
from fedaux.data.persons import persons_from_paths
from fedaux.data.records import UNDECLARED, Corpus, Records

UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)  # Pillow's, of a bad file
MOST_DAMAGED = 0.1  # share of files that cannot be read, and one: with more, this is not the folder that was meant
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")  # of these suffixes
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}  # of the modes that a site may choose
SPLITS = {"train", "test", "val", "valid", "validation"}  # sub-folders that may be parts of a data set


def image_folder(
    path: Path,
    size: int | None = None,
    mode: str = "RGB",
    classes: Sequence[str] = (),
    person: str = "",
    declared: Sequence[str] = (),
    strict: bool = False,
    split: str = "",
    test: str = "",
) -> Corpus:
    """A folder with a sub-folder of images for each class, or of unlabelled images.

    `split` names a sub-folder in which they are instead, `test` one for testing. Without them, `train` and `test` are
    found where there is nothing but such parts of a data set.

    `size` crops and resizes each image to that square; without it all must have the same size. `mode="L"` converts them
    to greyscale. `classes` names the sub-folders in order. `person` is a regular expression over an image's path: the
    person is its first group, or the whole match. Hidden files and folders are not looked at, and a folder without
    images is no class. Files that cannot be read are left out and named in the corpus' notes; `strict` stops at the
    first of them.

    With `declared` classes everything below the folder that has the name of an image is a record, with the label of
    its sub-folder, `UNDECLARED` if that is no class. What cannot be read as an image is a blank record without a class.
    `size` is required then, and no sub-folder is taken for a part of the data set but the one that `split` names.
    """
    require_file(path, "your own images")
    if declared:
        return _own_images(_subfolder(path, split), size, mode, person, declared)
    chosen = bool(split or test)
    split, test = (split, test) if chosen else find_splits(path)
    root = _subfolder(path, split)
    names = _class_folders(root, classes)
    notes = (_taken_for_a_class(root),) if "train" in names and not chosen and not classes else ()

    def labelled_files(folder: Path) -> Mapping[Path, int | None]:
        if not names:
            return dict.fromkeys(list_images(folder))
        return {file: label for label, name in enumerate(names) for file in list_images(folder / name)}

    train = labelled_files(root)
    if not train:
        raise ValueError(f"{root} holds no image; put them there, labelled ones in a sub-folder for each class")
    tested: Mapping[Path, int | None] = {}
    if test:
        _refuse_new_classes(_subfolder(path, test), names)
        tested = labelled_files(path / test)
    corpus, kept = image_files("images", train, tested, names, size, mode, strict)
    ids = persons_from_paths(person, kept, root) if person else None
    return replace(corpus, train=replace(corpus.train, person=ids), notes=(*corpus.notes, *notes))


def _own_images(root: Path, size: int | None, mode: str, person: str, declared: Sequence[str]) -> Corpus:
    """The images of a site. How many there are, and their shape, must not depend on what is in them."""
    width, channels = own_format(size, mode)
    position = {name: label for label, name in enumerate(declared)}
    files = list_images(root)
    if not files:
        raise ValueError(f"{root} holds no image; put them there, in a sub-folder for each class")
    damaged: list[Path] = []

    def read(file: Path) -> Iterator[Block]:
        try:
            with open_image(file) as image:
                x = crop_and_resize(image, width, mode)
        except Exception:  # Pillow has no end of them
            damaged.append(file)
            x = np.zeros((width, width, channels), np.uint8)
        yield x[None], None

    records = convert("images", read, files, options=("own", width, mode), skipped=damaged).train
    lost = set(damaged)
    labels = [UNDECLARED if file in lost else position.get(_folder_below(root, file), UNDECLARED) for file in files]
    ids = persons_from_paths(person, files, root) if person else None
    return Corpus(replace(records, y=np.array(labels, dtype=np.int64), person=ids), classes=tuple(declared))


def _folder_below(root: Path, file: Path) -> str:
    """The name of the first folder on the way from `root` to a file, or ""."""
    return file.relative_to(root).parts[0] if file.parent != root else ""


def own_format(size: int | None, mode: str) -> tuple[int, int]:
    """(pixels, channels) of images at a site."""
    if not isinstance(size, int) or size < 1:
        raise ConfigError(
            "a site's images need a size that does not depend on them: write options = {size = 32} into [data], "
            "the pixels to which all are cropped and shrunk, the same everywhere."
        )
    require(mode in CHANNELS, f"data.options.mode = {mode!r} must be one of {', '.join(CHANNELS)}.")
    return size, CHANNELS[mode]


def open_image(file: Path | IO[bytes]) -> Image.Image:
    """By its content alone: which formats Pillow would try otherwise depends on the files that it has seen before."""
    if isinstance(file, Path) and not file.is_file():
        raise OSError(f"{file} is no file")
    return Image.open(file, formats=FORMATS)


def find_splits(path: Path) -> tuple[str, str]:
    """(train, test or ""), where all sub-folders with images are parts of a data set; else ("", "")."""
    names = {folder.name for folder in subfolders(path)}
    if "train" not in names or not names <= SPLITS:
        return "", ""
    return "train", "test" if "test" in names else ""


def _taken_for_a_class(path: Path) -> str:
    return (
        f"{path / 'train'} was taken for a class, because of the folders beside it; if it holds the training images, "
        "write options = {split = 'train'}"
    )


def _subfolder(path: Path, name: str) -> Path:
    if name and not (path / name).is_dir():
        raise ConfigError(f"there is no folder {path / name}: correct split and test in data.options.")
    return path / name


def _class_folders(root: Path, classes: Sequence[str]) -> list[str]:
    folders = [folder.name for folder in subfolders(root)]
    if classes and not set(folders) <= set(classes):
        raise ValueError(f"{root} has folders {folders}, which are not all among the classes {list(classes)}")
    return list(classes) if classes and folders else folders


def subfolders(root: Path) -> list[Path]:
    """Those that hold an image and are not hidden."""
    folders = (folder for folder in sorted(root.iterdir()) if folder.is_dir() and not _is_hidden(folder.name))
    return [folder for folder in folders if next(_images_below(folder), None) is not None]


def _refuse_new_classes(test: Path, names: Sequence[str]) -> None:
    """A class that only the test has would never be learned, and its images must not vanish."""
    unknown = [folder.name for folder in subfolders(test) if names and folder.name not in names]
    if unknown:
        raise ValueError(
            f"{test} has the class {', '.join(unknown)}, of which there is no training image; the classes are "
            f"{', '.join(names)}. Rename or remove that folder, or give it training images"
        )


def image_files(
    kind: str,
    train: Mapping[Path, int | None],
    test: Mapping[Path, int | None],
    classes: Sequence[str],
    size: int | None,
    mode: str,
    strict: bool = False,
) -> tuple[Corpus, list[Path]]:
    """(the corpus, the files of its training records)."""

    def read(file: Path) -> Iterator[Block]:
        try:
            with Image.open(file) as image:
                yield crop_and_resize(image, size, mode)[None], None
        except UNREADABLE as error:
            if strict:
                raise ValueError(f"{file} cannot be read as an image ({error}); take it out") from error
            damaged.append(file)

    damaged: list[Path] = []
    corpus = convert(kind, read, list(train), list(test), options=(size, mode, strict), skipped=damaged)
    lost = set(damaged)
    if len(lost) > MOST_DAMAGED * (len(train) + len(test)) + 1:
        raise ValueError(
            f"{len(lost)} of {len(train) + len(test)} files cannot be read as images, {damaged[0]} for one"
        )
    kept, tested = ({file: label for file, label in part.items() if file not in lost} for part in (train, test))
    test_records = None if corpus.test is None else _with_labels(corpus.test, tested)
    notes = (_left_out(damaged),) if damaged else ()
    return Corpus(_with_labels(corpus.train, kept), test_records, tuple(classes), notes), list(kept)


def _left_out(damaged: Sequence[Path]) -> str:
    names = ", ".join(map(str, damaged[:3])) + (" …" if len(damaged) > 3 else "")
    count = f"{len(damaged)} image{'s' * (len(damaged) > 1)}"
    return (
        f"{count} could not be read and {'are' if len(damaged) > 1 else 'is'} left out: {names}; --strict stops there"
    )


def _with_labels(records: Records, files: Mapping[Path, int | None]) -> Records:
    labels = [label for label in files.values() if label is not None]
    return replace(records, y=np.array(labels, dtype=np.int64) if labels else None)


def crop_and_resize(image: Image.Image, size: int | None, mode: str) -> NDArray[np.uint8]:
    """(H, W, C), or the central square resized to (size, size, C) with a box filter."""
    image = image.convert(mode)
    x = np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BOX) if size else image)
    return x.reshape(*x.shape[:2], -1)


def list_images(folder: Path) -> list[Path]:
    """All below a folder, but for hidden ones such as those in .ipynb_checkpoints."""
    return sorted(_images_below(folder))


def _images_below(folder: Path) -> Iterator[Path]:
    """By their names alone. A folder with the name of an image is one, and nothing below it is looked at."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files) if _is_image(name))
        folders[:] = [name for name in folders if not _is_hidden(name) and not _is_image(name)]


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not _is_hidden(name)


def _is_hidden(name: str) -> bool:
    """.ipynb_checkpoints, .thumbnails, ._copy.png, __MACOSX."""
    return name.startswith((".", "__"))

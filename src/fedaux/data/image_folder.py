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

UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)  # Pillow's, of a bad file
MOST_DAMAGED = 0.1  # share of files that cannot be read, and one: with more, this is not the folder that was meant
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}


def image_folder(
    path: Path,
    size: int | None = None,
    mode: str = "RGB",
    classes: Sequence[str] = (),
    person: str = "",
    declared: Sequence[str] = (),
    strict: bool = False,
) -> Corpus:
    """A folder with a sub-folder of images for each class, or of unlabelled images; or `train` and `test` of this kind.

    `size` crops and resizes each image to that square; without it all must have the same size. `mode="L"` converts them
    to greyscale. `classes` names the sub-folders in order. `person` is a regular expression over an image's path: the
    person is its first group, or the whole match. With `declared` classes every image below the folder is a record; its
    label is that of its sub-folder, `UNDECLARED` if that is no class.

    Hidden files and folders are not looked at, and a folder without images is no class. Files that cannot be read are
    left out and named in the corpus' notes; `strict` stops at the first of them.
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
    test: Mapping[Path, int | None] = {}
    if root != path and not declared and (path / "test").is_dir():
        _refuse_new_classes(path / "test", names)
        test = labelled_files(path / "test")
    corpus, kept = image_files("images", train, test, names, size, mode, strict, bool(declared))
    ids = persons_from_paths(person, kept, root) if person else None
    return replace(corpus, train=replace(corpus.train, person=ids))


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
    declared: bool = False,
) -> tuple[Corpus, list[Path]]:
    """(the corpus, the files of its training records).

    At a real site, with `declared` classes, a file that cannot be read stays a record, blank and without a class:
    how many records there are must not depend on what is in them. That needs a `size`.
    """
    blank = declared and size is not None

    def read(file: Path) -> Iterator[Block]:
        try:
            with Image.open(file) as image:
                yield crop_and_resize(image, size, mode)[None], None
        except UNREADABLE as error:
            if strict or (declared and not blank):
                hint = "take it out" if strict else "take it out, or set size in data.options"
                raise ValueError(f"{file} cannot be read as an image ({error}); {hint}") from error
            damaged.append(file)
            if blank:
                yield np.zeros((1, size or 0, size or 0, len(Image.new(mode, (1, 1)).getbands())), np.uint8), None

    damaged: list[Path] = []
    corpus = convert(kind, read, list(train), list(test), options=(size, mode, strict, declared), skipped=damaged)
    lost = set(damaged)
    if len(lost) > MOST_DAMAGED * (len(train) + len(test)) + 1:
        raise ValueError(
            f"{len(lost)} of {len(train) + len(test)} files cannot be read as images, {damaged[0]} for one"
        )
    kept = list(train) if blank else [file for file in train if file not in lost]
    labels = {file: UNDECLARED if file in lost else train[file] for file in kept}
    tested = {file: label for file, label in test.items() if file not in lost}
    test_records = None if corpus.test is None else _with_labels(corpus.test, tested)
    notes = (_left_out(damaged),) if damaged else ()
    return Corpus(_with_labels(corpus.train, labels), test_records, tuple(classes), notes), kept


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


def find_subfolder(path: Path, *names: str) -> Path:
    """The first of these sub-folders that exists, else `path` itself."""
    return next((path / name for name in names if (path / name).is_dir()), path)


def list_images(folder: Path) -> list[Path]:
    """All below a folder, but for hidden ones such as those in .ipynb_checkpoints."""
    return sorted(_images_below(folder))


def _images_below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.suffix.lower() in SUFFIXES and not any(map(_is_hidden, file.relative_to(folder).parts)):
            yield file


def _is_hidden(name: str) -> bool:
    """.ipynb_checkpoints, .thumbnails, ._copy.png, __MACOSX."""
    return name.startswith((".", "__"))

"""Images as uint8 (N, H, W, C), from folders of files.

Pixels are cached; labels and persons are read from the paths, one record per file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fedaux.config.parsing import ConfigError, require
from fedaux.data.arrays import Block, convert, require_file
from fedaux.data.image_folders import (
    ImageFiles,
    Labelled,
    files_at_site,
    find_files,
    subfolder,
)
from fedaux.data.labels import factorize
from fedaux.data.records import UNDECLARED, Corpus, Records

# Pillow's, of a bad file
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
# share of files that cannot be read, and one: with more, this is not the folder that
# was meant
MOST_DAMAGED = 0.1
IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")  # of the suffixes
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}  # of the modes that a site may choose
MODE_OF_CHANNELS = {channels: mode for mode, channels in CHANNELS.items()}


@dataclass(frozen=True)
class PixelFormat:
    """What files of images become.

    Attributes:
        size: The square to which each is cropped and resized. None means its own size.
        mode: "RGB", "L" for grey or "RGBA".
        strict: Whether a file that cannot be read is an error.
        own: Whether they are those of a site. How many records there are, and their
            shape, must then not depend on what is in them.
    """

    size: int | None = None
    mode: str = "RGB"
    strict: bool = False
    own: bool = False

    @property
    def cache_key(self) -> tuple[object, ...]:
        if self.own:
            return "own", self.size, self.mode
        return self.size, self.mode, self.strict

    @property
    def unreadable(self) -> tuple[type[Exception], ...]:
        """The errors of a file that is no image."""
        return (Exception,) if self.own else UNREADABLE  # Pillow has no end of them

    def pixels(self, file: Path) -> NDArray[np.uint8]:
        with open_image(file) if self.own else Image.open(file) as image:
            return crop_and_resize(image, self.size, self.mode)

    def blank(self) -> NDArray[np.uint8]:
        """What a site has in place of an image that cannot be read."""
        width, channels = own_format(self.size, self.mode)
        return np.zeros((width, width, channels), np.uint8)


def image_folder(
    path: Path,
    size: int | None = None,
    mode: str = "RGB",
    person: str = "",
    declared: Sequence[str] = (),
    strict: bool = False,
    split: str = "",
    test: str = "",
    folders: str = "",
    sites: Sequence[str] = (),
) -> Corpus:
    """A folder with a sub-folder of images for each class, or of unlabelled images.

    With `sites`, which data.partition = "folders" passes, it has a folder for each of
    these sites, with those of the classes in it. Folders that may be sites are refused
    without it, unless `folders = "classes"` says what they are.

    `split` names a sub-folder in which they are instead, `test` one for testing.
    Without them, `train` and `test` are found where there is nothing but such parts of
    a data set.

    `size` crops and resizes each image to that square. Without it all must have the
    same size. `mode="L"` converts them to greyscale. `person` is a regular expression
    over an image's path: the person is its first group, or the whole match. Hidden
    files and folders are not looked at, and a folder without images is no class. Files
    that cannot be read are left out and named in the corpus' notes. `strict` stops at
    the first of them.

    With `declared` classes everything below the folder that has the name of an image is
    a record, with the label of its sub-folder, `UNDECLARED` if that is no class. What
    cannot be read as an image is a blank record without a class. `size` is required
    then, and no sub-folder is taken for a part of the data set but the one that `split`
    names.
    """
    require_file(path, "your own images")
    if declared:
        own_format(size, mode)
        form = PixelFormat(size, mode, own=True)
        files = files_at_site(subfolder(path, split), declared)
    else:
        form = PixelFormat(size, mode, strict)
        files = find_files(path, split, test, folders, sites)
    corpus, kept = read_image_files("images", files, form)
    if not person:
        return corpus
    ids = persons_from_paths(person, kept, files.root)
    return replace(corpus, train=replace(corpus.train, person=ids))


def read_image_files(
    kind: str, files: ImageFiles, form: PixelFormat
) -> tuple[Corpus, list[Path]]:
    """(the corpus, the files of its training records). A file that cannot be read is
    left out. At a site it is a blank record without a class.
    """
    damaged: list[Path] = []

    def read(file: Path) -> Iterator[Block]:
        try:
            x = form.pixels(file)
        except form.unreadable as error:
            if form.strict:
                raise ValueError(
                    f"Cannot read the images: {file} cannot be read as an image "
                    f"({error}). Take it out."
                ) from error
            damaged.append(file)
            if not form.own:
                return
            x = form.blank()
        yield x[None], None

    train = list(files.train)
    test = list(files.test)
    key = form.cache_key
    pixels = convert(kind, read, train, test, options=key, skipped=damaged)
    if form.own:
        labels = {**files.train, **dict.fromkeys(damaged, UNDECLARED)}
        records = _with_labels(pixels.train, labels)
        return Corpus(records, classes=files.classes), train

    count = len(train) + len(test)
    if len(damaged) > MOST_DAMAGED * count + 1:
        raise ValueError(
            f"Cannot read the images: {len(damaged)} of {count} files cannot be read "
            f"as images, {damaged[0]} for one. Take them out."
        )
    kept = _without(files.train, damaged)
    corpus = Corpus(
        _with_labels(pixels.train, kept),
        classes=files.classes,
        notes=(*_left_out(damaged), *files.notes),
    )
    if pixels.test is not None:
        tested = _with_labels(pixels.test, _without(files.test, damaged))
        corpus = replace(corpus, test=tested)
    if files.site:
        positions = [files.site[file] for file in kept]
        corpus = replace(corpus, site=np.array(positions, dtype=np.int64))
    return corpus, list(kept)


def _without(files: Labelled, damaged: Sequence[Path]) -> Labelled:
    lost = set(damaged)
    return {file: label for file, label in files.items() if file not in lost}


def _left_out(damaged: Sequence[Path]) -> list[str]:
    """A note of the images that could not be read, if there are any."""
    if not damaged:
        return []
    names = ", ".join(map(str, damaged[:3])) + " …" * (len(damaged) > 3)
    left_out = "1 image could not be read and is left out"
    if len(damaged) > 1:
        left_out = f"{len(damaged)} images could not be read and are left out"
    return [f"{left_out}: {names}. --strict stops there"]


def _with_labels(records: Records, files: Labelled) -> Records:
    labels = [label for label in files.values() if label is not None]
    if not labels:
        return records
    return replace(records, y=np.array(labels, dtype=np.int64))


def persons_from_paths(
    pattern: str, files: Sequence[Path], root: Path
) -> NDArray[np.int64]:
    """Ids from file paths below `root`: the first group of the pattern, or the whole
    match.
    """
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise ConfigError(
            f"Cannot use data.person = {pattern!r}: it is not a regular expression "
            f"({error}). Correct it."
        ) from error

    def person_of(file: Path) -> str:
        match = search(file.relative_to(root).as_posix())
        if match is None:
            return ""
        return match[min(1, match.re.groups)] or ""

    return factorize(map(person_of, files))


def own_format(size: int | None, mode: str) -> tuple[int, int]:
    """(pixels, channels) of images at a site."""
    if not isinstance(size, int) or size < 1:
        raise ConfigError(
            "Cannot read a site's images: they need a size that does not depend on "
            "them. Write options = {size = 32} into [data], the pixels to which all "
            "are cropped and shrunk, the same everywhere."
        )
    require(
        mode in CHANNELS,
        f"Cannot use data.options.mode = {mode!r}: it must be one of "
        f"{', '.join(CHANNELS)}. Correct it.",
    )
    return size, CHANNELS[mode]


def open_image(file: Path | IO[bytes]) -> Image.Image:
    """Detect a format by content alone: otherwise Pillow's choice depends on the files
    that it has seen before.
    """
    if isinstance(file, Path) and not file.is_file():
        raise OSError(f"{file} is not a file")
    return Image.open(file, formats=IMAGE_FORMATS)


def crop_and_resize(
    image: Image.Image, size: int | None, mode: str
) -> NDArray[np.uint8]:
    """(H, W, C), or the central square resized to (size, size, C) with a box filter."""
    image = image.convert(mode)
    if size:
        image = ImageOps.fit(image, (size, size), Image.Resampling.BOX)
    x = np.asarray(image)
    return x.reshape(*x.shape[:2], -1)

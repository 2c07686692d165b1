"""Images as uint8 (N, H, W, C): folders of files, and published data sets in their
original files.

Of a folder, pixels are cached; labels and persons are read from the paths, one record
per file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fedaux.config.parsing import ConfigError, require
from fedaux.data.arrays import Block, convert, load_pickle, require_file
from fedaux.data.labels import factorize
from fedaux.data.records import UNDECLARED, Corpus, Records

# Pillow's, of a bad file
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
# share of files that cannot be read, and one: with more, this is not the folder that
# was meant
MOST_DAMAGED = 0.1
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}
IMAGE_FORMATS = (
    "PNG",
    "JPEG",
    "BMP",
    "GIF",
    "PPM",
    "TIFF",
    "WEBP",
)  # of these suffixes
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}  # of the modes that a site may choose
MODE_OF_CHANNELS = {channels: mode for mode, channels in CHANNELS.items()}
# sub-folders that may be parts of a data set
SPLIT_FOLDERS = {"train", "test", "val", "valid", "validation"}


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

    `size` crops and resizes each image to that square; without it all must have the
    same size. `mode="L"` converts them to greyscale. `person` is a regular expression
    over an image's path: the person is its first group, or the whole match. Hidden
    files and folders are not looked at, and a folder without images is no class. Files
    that cannot be read are left out and named in the corpus' notes; `strict` stops at
    the first of them.

    With `declared` classes everything below the folder that has the name of an image is
    a record, with the label of its sub-folder, `UNDECLARED` if that is no class. What
    cannot be read as an image is a blank record without a class. `size` is required
    then, and no sub-folder is taken for a part of the data set but the one that `split`
    names.
    """
    require_file(path, "your own images")
    if declared:
        return _own_images(_subfolder(path, split), size, mode, person, declared)
    chosen = bool(split or test)
    split, test = (split, test) if chosen else find_splits(path)
    root = _subfolder(path, split)
    if sites:
        return _images_of_sites(
            root, path / test if test else None, size, mode, person, strict, sites
        )
    names = [folder.name for folder in subfolders(root)]
    require(
        folders in ("", "classes"),
        f"data.options.folders = {folders!r} must be 'classes', or be left out.",
    )
    if not folders:
        _refuse_site_folders(root)
    taken_for_class = (
        f"{root / 'train'} was taken for a class, because of the folders beside it; if it holds the training images, "
        "write options = {split = 'train'}"
    )
    notes = (taken_for_class,) if "train" in names and not chosen else ()

    def labelled_files(folder: Path) -> Mapping[Path, int | None]:
        if not names:
            return dict.fromkeys(list_images(folder))
        return {
            file: label
            for label, name in enumerate(names)
            for file in list_images(folder / name)
        }

    train = labelled_files(root)
    if not train:
        raise ValueError(
            f"{root} holds no image; put them there, labelled ones in a sub-folder for "
            "each class"
        )
    tested: Mapping[Path, int | None] = {}
    if test:
        _refuse_new_classes(_subfolder(path, test), names)
        tested = labelled_files(path / test)
    corpus, kept = image_files("images", train, tested, names, size, mode, strict)
    ids = persons_from_paths(person, kept, root) if person else None
    return replace(
        corpus, train=replace(corpus.train, person=ids), notes=(*corpus.notes, *notes)
    )


def _images_of_sites(
    root: Path,
    test: Path | None,
    size: int | None,
    mode: str,
    person: str,
    strict: bool,
    sites: Sequence[str],
) -> Corpus:
    """The images in ROOT/SITE/CLASS, with the position of each one's site."""
    found = [folder.name for folder in subfolders(root)]
    if sorted(found) != sorted(sites):
        raise ConfigError(
            f"federation.sites = {toml_names(sites)}, but the folders with images in "
            f"{root} are {', '.join(found)}: write sites = {toml_names(found)} into "
            "[federation]."
        )
    inner = {
        site: [folder.name for folder in subfolders(root / site)] for site in sites
    }
    names = sorted({name for each in inner.values() for name in each})
    train = dict[Path, int | None]()
    site_of = dict[Path, int]()
    for position, site in enumerate(sites):
        if not inner[site]:
            raise ValueError(
                f"{root / site} must have a sub-folder of images for each class of "
                "this site"
            )
        for name in inner[site]:
            for file in list_images(root / site / name):
                train[file] = names.index(name)
                site_of[file] = position
    tested: dict[Path, int | None] = {}
    for folder in subfolders(test) if test is not None else []:
        for group in [folder] if folder.name in names else subfolders(folder):
            _refuse_new_classes(group.parent, names)
            tested |= dict.fromkeys(list_images(group), names.index(group.name))
    corpus, kept = image_files("images", train, tested, names, size, mode, strict)
    ids = persons_from_paths(person, kept, root) if person else None
    where = np.array([site_of[file] for file in kept], dtype=np.int64)
    return replace(corpus, train=replace(corpus.train, person=ids), site=where)


def toml_names(names: Sequence[str]) -> str:
    """["berlin", "paris"]."""
    return json.dumps(list(names), ensure_ascii=False)


def site_layout(root: Path) -> dict[str, list[str]]:
    """The sub-folders of each folder, if these may be sites and their sub-folders the
    classes; else {}.

    That is where every folder has sub-folders with images, of at least two names, one
    of which occurs twice.
    """
    inner = {
        folder.name: [one.name for one in subfolders(folder)]
        for folder in subfolders(root)
    }
    names = [name for each in inner.values() for name in each]
    repeated = 1 < len(set(names)) < len(names)
    return inner if len(inner) > 1 and all(inner.values()) and repeated else {}


def _refuse_site_folders(root: Path) -> None:
    inner = site_layout(root)
    if not inner:
        return
    names = sorted({name for each in inner.values() for name in each})
    raise ConfigError(
        f"in {root}, are {_some(list(inner))} sites or classes? They share the "
        f"sub-folders {_some(names)}. "
        f'If they are sites, write partition = "folders" into [data] and sites = {toml_names(list(inner))} into '
        "[federation]: one client for each, with its sub-folders as classes. If they "
        "are classes, write "
        'options = {folders = "classes"} into [data].'
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _own_images(
    root: Path, size: int | None, mode: str, person: str, declared: Sequence[str]
) -> Corpus:
    """The images of a site. How many there are, and their shape, must not depend on
    what is in them.
    """
    width, channels = own_format(size, mode)
    position = {name: label for label, name in enumerate(declared)}
    files = list_images(root)
    if not files:
        raise ValueError(
            f"{root} holds no image; put them there, in a sub-folder for each class"
        )
    damaged: list[Path] = []

    def read(file: Path) -> Iterator[Block]:
        try:
            with open_image(file) as image:
                x = crop_and_resize(image, width, mode)
        except Exception:  # Pillow has no end of them
            damaged.append(file)
            x = np.zeros((width, width, channels), np.uint8)
        yield x[None], None

    records = convert(
        "images", read, files, options=("own", width, mode), skipped=damaged
    ).train
    lost = set(damaged)
    labels = [
        UNDECLARED
        if file in lost
        else position.get(_folder_below(root, file), UNDECLARED)
        for file in files
    ]
    ids = persons_from_paths(person, files, root) if person else None
    return Corpus(
        replace(records, y=np.array(labels, dtype=np.int64), person=ids),
        classes=tuple(declared),
    )


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
            f"data.person = {pattern!r} is not a regular expression: {error}."
        ) from error
    matches = (search(file.relative_to(root).as_posix()) for file in files)
    return factorize(
        (match[1 if match.re.groups else 0] or "") if match else "" for match in matches
    )


def _folder_below(root: Path, file: Path) -> str:
    """The name of the first folder on the way from `root` to a file, or ""."""
    return file.relative_to(root).parts[0] if file.parent != root else ""


def own_format(size: int | None, mode: str) -> tuple[int, int]:
    """(pixels, channels) of images at a site."""
    if not isinstance(size, int) or size < 1:
        raise ConfigError(
            "a site's images need a size that does not depend on them: write options = "
            "{size = 32} into [data], the pixels to which all are cropped and shrunk, "
            "the same everywhere."
        )
    require(
        mode in CHANNELS,
        f"data.options.mode = {mode!r} must be one of {', '.join(CHANNELS)}.",
    )
    return size, CHANNELS[mode]


def open_image(file: Path | IO[bytes]) -> Image.Image:
    """Detect a format by content alone: otherwise Pillow's choice depends on the files
    that it has seen before.
    """
    if isinstance(file, Path) and not file.is_file():
        raise OSError(f"{file} is not a file")
    return Image.open(file, formats=IMAGE_FORMATS)


def find_splits(path: Path) -> tuple[str, str]:
    """(train, test or ""), where all sub-folders with images are parts of a data set;
    else ("", "").
    """
    names = {folder.name for folder in subfolders(path)}
    if "train" not in names or not names <= SPLIT_FOLDERS:
        return "", ""
    return "train", "test" if "test" in names else ""


def _subfolder(path: Path, name: str) -> Path:
    if name and not (path / name).is_dir():
        raise ConfigError(
            f"there is no folder {path / name}: correct split and test in data.options."
        )
    return path / name


def subfolders(root: Path) -> list[Path]:
    """Those that hold an image and are not hidden."""
    folders = (
        folder
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not _is_hidden(folder.name)
    )
    return [
        folder for folder in folders if next(_images_below(folder), None) is not None
    ]


def _refuse_new_classes(test: Path, names: Sequence[str]) -> None:
    """A class that only the test has would never be learned, and its images must not
    vanish.
    """
    unknown = [
        folder.name for folder in subfolders(test) if names and folder.name not in names
    ]
    if unknown:
        raise ValueError(
            f"{test} has the class {', '.join(unknown)}, of which there is no training "
            f"image; the classes are {', '.join(names)}. Rename or remove that folder, "
            "or give it training images"
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
                raise ValueError(
                    f"{file} cannot be read as an image ({error}); take it out"
                ) from error
            damaged.append(file)

    damaged: list[Path] = []
    corpus = convert(
        kind,
        read,
        list(train),
        list(test),
        options=(size, mode, strict),
        skipped=damaged,
    )
    lost = set(damaged)
    if len(lost) > MOST_DAMAGED * (len(train) + len(test)) + 1:
        raise ValueError(
            f"{len(lost)} of {len(train) + len(test)} files cannot be read as images, "
            f"{damaged[0]} for one"
        )
    kept, tested = (
        {file: label for file, label in part.items() if file not in lost}
        for part in (train, test)
    )
    test_records = None if corpus.test is None else _with_labels(corpus.test, tested)
    notes = (_left_out(damaged),) if damaged else ()
    return Corpus(
        _with_labels(corpus.train, kept), test_records, tuple(classes), notes
    ), list(kept)


def _left_out(damaged: Sequence[Path]) -> str:
    names = ", ".join(map(str, damaged[:3])) + (" …" if len(damaged) > 3 else "")
    count = f"{len(damaged)} image{'s' * (len(damaged) > 1)}"
    verb = "are" if len(damaged) > 1 else "is"
    return (
        f"{count} could not be read and {verb} left out: {names}; --strict stops there"
    )


def _with_labels(records: Records, files: Mapping[Path, int | None]) -> Records:
    labels = [label for label in files.values() if label is not None]
    return replace(records, y=np.array(labels, dtype=np.int64) if labels else None)


def crop_and_resize(
    image: Image.Image, size: int | None, mode: str
) -> NDArray[np.uint8]:
    """(H, W, C), or the central square resized to (size, size, C) with a box filter."""
    image = image.convert(mode)
    x = np.asarray(
        ImageOps.fit(image, (size, size), Image.Resampling.BOX) if size else image
    )
    return x.reshape(*x.shape[:2], -1)


def list_images(folder: Path) -> list[Path]:
    """List all images below a folder, except hidden ones such as those in
    .ipynb_checkpoints.
    """
    return sorted(_images_below(folder))


def _images_below(folder: Path) -> Iterator[Path]:
    """Yield images by name alone. A folder with the name of an image counts as one, and
    is not searched.
    """
    for parent, folders, files in os.walk(folder):
        yield from (
            Path(parent, name) for name in (*folders, *files) if _is_image(name)
        )
        folders[:] = [
            name for name in folders if not _is_hidden(name) and not _is_image(name)
        ]


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not _is_hidden(name)


def _is_hidden(name: str) -> bool:
    """.ipynb_checkpoints, .thumbnails, ._copy.png, __MACOSX."""
    return name.startswith((".", "__"))


# Published data sets in their original files


def cifar10(path: Path) -> Corpus:
    """CIFAR-10, python or binary version (Krizhevsky 2009)."""
    root = find_subfolder(path, "cifar-10-batches-py", "cifar-10-batches-bin")
    files = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return _cifar(
        "CIFAR-10",
        root,
        files,
        "labels",
        ("batches.meta", "label_names", "batches.meta.txt"),
        (1, 0),
    )


def cifar100(path: Path, labels: str = "fine") -> Corpus:
    """CIFAR-100, python or binary version; `labels` is "fine" (100 classes) or "coarse"
    (20).
    """
    if labels not in ("fine", "coarse"):
        raise ValueError(
            f"labels={labels!r} must be 'fine' (100 classes) or 'coarse' (20 classes)"
        )
    root = find_subfolder(path, "cifar-100-python", "cifar-100-binary")
    meta = ("meta", f"{labels}_label_names", f"{labels}_label_names.txt")
    return _cifar(
        "CIFAR-100",
        root,
        ["train", "test"],
        f"{labels}_labels",
        meta,
        (2, int(labels == "fine")),
    )


def _cifar(
    title: str,
    root: Path,
    names: list[str],
    key: str,
    meta: tuple[str, str, str],
    layout: tuple[int, int],
) -> Corpus:
    """Pickles with `data` and `key`, or `.bin` rows: label bytes (`layout`: how many,
    which one), then planes.
    """
    label_bytes, column = layout
    suffix = ".bin" if (root / f"{names[0]}.bin").exists() else ""
    files = [
        require_file(root / f"{name}{suffix}", f"{title}, python or binary version")
        for name in names
    ]

    def read(file: Path) -> Iterator[Block]:
        if suffix:
            rows = np.fromfile(file, dtype=np.uint8).reshape(-1, label_bytes + 3072)
            yield _to_images(rows[:, label_bytes:]), rows[:, column].astype(np.int64)
        else:
            batch = load_pickle(file)
            yield _to_images(batch["data"]), np.array(batch[key], dtype=np.int64)

    classes = (
        load_pickle(root / meta[0])[meta[1]]
        if (root / meta[0]).exists()
        else _lines(root / meta[2])
    )
    return convert(
        title.lower().replace("-", ""), read, files[:-1], files[-1:], classes, key
    )


def stl10(path: Path, part: str = "train", size: int | None = None) -> Corpus:
    """STL-10, binary version (Coates et al. 2011): `part` "train" (labelled, with its
    test set) or "unlabeled".

    The 96×96 file is memory-mapped; `size=32` writes a resized copy once.
    """
    root = find_subfolder(path, "stl10_binary")
    parts = ["train", "test"] if part == "train" else [part]
    files = [
        require_file(root / f"{name}_X.bin", "STL-10, binary version") for name in parts
    ]

    def records(file: Path) -> Records:
        # planes are column-major
        planes = np.memmap(file, dtype=np.uint8, mode="r").reshape(-1, 3, 96, 96)
        labels = file.with_name(file.name.replace("_X", "_y"))
        y = (
            np.fromfile(labels, np.uint8).astype(np.int64) - 1
            if part == "train"
            else None
        )
        return Records(planes.transpose(0, 3, 2, 1), y)

    def read(file: Path) -> Iterator[Block]:
        full = records(file)
        for block in full.blocks(1000):
            resized = np.stack(
                [
                    crop_and_resize(Image.fromarray(image), size, "RGB")
                    for image in full.gather(block)
                ]
            )
            yield resized, None if full.y is None else full.y[block]

    classes = _lines(root / "class_names.txt") if part == "train" else []
    if size:
        return convert("stl10", read, files[:1], files[1:], classes, size)
    return Corpus(
        records(files[0]),
        records(files[1]) if part == "train" else None,
        tuple(classes),
    )


def tinyimagenet(
    path: Path, wnids: Sequence[str] = (), size: int | None = None
) -> Corpus:
    """Tiny ImageNet (200 classes, 64×64), or its classes `wnids` in that order; the
    validation set is the test set.
    """
    root = find_subfolder(path, "tiny-imagenet-200")
    folders = {
        folder.name: folder
        for folder in sorted(require_file(root / "train", "Tiny ImageNet").iterdir())
    }
    wnids = list(wnids or folders)
    train = {
        file: label
        for label, folder in enumerate(_select(folders, wnids))
        for file in list_images(folder)
    }
    annotations = [
        line.split("\t")[:2] for line in _lines(root / "val" / "val_annotations.txt")
    ]
    test = {
        root / "val" / "images" / file: wnids.index(wnid)
        for file, wnid in annotations
        if wnid in wnids
    }
    titles = dict(line.split("\t", 1) for line in _lines(root / "words.txt"))
    return image_files(
        "tinyimagenet",
        train,
        test,
        [titles.get(wnid, wnid) for wnid in wnids],
        size,
        "RGB",
    )[0]


def find_subfolder(path: Path, *names: str) -> Path:
    """The first of these sub-folders that exists, else `path` itself."""
    return next((path / name for name in names if (path / name).is_dir()), path)


def _to_images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Consecutive colour planes (N, 3·S·S) → (N, S, S, 3)."""
    side = round((rows.shape[1] / 3) ** 0.5)
    return rows.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)


def _lines(file: Path) -> list[str]:
    return (
        [line for line in file.read_text("utf-8").splitlines() if line]
        if file.exists()
        else []
    )


def _select(known: Mapping[str, Any], wnids: Sequence[str]) -> list[Any]:
    unknown = [wnid for wnid in wnids if wnid not in known]
    if unknown:
        raise ValueError(
            f"no WordNet id {', '.join(unknown)} here; there are "
            f"{', '.join(list(known)[:5])}, ..."
        )
    return [known[wnid] for wnid in wnids]

"""Which images a folder has: for training and testing, of which class and which site.

Everything is decided by names of files and folders. No image is opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedaux.config.parsing import ConfigError, require
from fedaux.data.records import UNDECLARED

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}
# sub-folders that may be parts of a data set
SPLIT_FOLDERS = {"train", "test", "val", "valid", "validation"}

Labelled = Mapping[Path, int | None]  # the label of each file; None without classes


@dataclass(frozen=True)
class ImageFiles:
    """The images of a data set below `root`, in the order of their records."""

    root: Path
    train: Labelled
    test: Labelled = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    site: Mapping[Path, int] = field(default_factory=dict)  # of each training image
    notes: tuple[str, ...] = ()


def files_at_site(root: Path, declared: Sequence[str]) -> ImageFiles:
    """Everything below `root` that has the name of an image, whatever is in it. The
    class is the first folder on the way.
    """
    position = {name: label for label, name in enumerate(declared)}
    files = list_images(root)
    if not files:
        raise ValueError(
            f"Cannot read images: {root} holds no image. Put them there, in a "
            "subfolder for each class."
        )
    labels = {
        file: position.get(_folder_below(root, file), UNDECLARED) for file in files
    }
    return ImageFiles(root, labels, classes=tuple(declared))


def _folder_below(root: Path, file: Path) -> str:
    """The name of the first folder on the way from `root` to a file, or ""."""
    if file.parent == root:
        return ""
    return file.relative_to(root).parts[0]


def find_files(
    path: Path, split: str, test: str, folders: str, sites: Sequence[str]
) -> ImageFiles:
    """The images of a simulation, by folders of `sites` or of classes; parts for
    training and testing that are not named are found.
    """
    chosen = bool(split or test)
    if not chosen:
        split, test = find_splits(path)
    root = subfolder(path, split)
    test_root = subfolder(path, test) if test else None
    if sites:
        return files_of_sites(root, test_root, sites)
    files = files_of_classes(root, test_root, folders)
    if chosen or "train" not in files.classes:
        return files
    taken_for_class = (
        f"{root / 'train'} was taken for a class, because of the folders next to it. "
        "If it contains the training images, write options = {split = 'train'}"
    )
    return replace(files, notes=(taken_for_class,))


def files_of_classes(root: Path, test: Path | None, folders: str = "") -> ImageFiles:
    """The images in ROOT/CLASS, or all below a folder without sub-folders of
    images.
    """
    require(
        folders in ("", "classes"),
        f"Cannot use data.options.folders = {folders!r}: it must be 'classes', or be "
        "left out. Correct it.",
    )
    if not folders:
        _refuse_site_folders(root)
    names = [folder.name for folder in subfolders(root)]
    train = _labelled_files(root, names)
    if not train:
        raise ValueError(
            f"Cannot read images: {root} holds no image. Put them there, labelled ones "
            "in a sub-folder for each class."
        )
    tested: Labelled = {}
    if test is not None:
        _refuse_new_classes(test, names)
        tested = _labelled_files(test, names)
    return ImageFiles(root, train, tested, tuple(names))


def _labelled_files(root: Path, classes: Sequence[str]) -> Labelled:
    if not classes:
        return dict.fromkeys(list_images(root))
    files: dict[Path, int | None] = {}
    for label, name in enumerate(classes):
        files |= dict.fromkeys(list_images(root / name), label)
    return files


def files_of_sites(root: Path, test: Path | None, sites: Sequence[str]) -> ImageFiles:
    """The images in ROOT/SITE/CLASS, with the position of each one's site."""
    present = [folder.name for folder in subfolders(root)]
    if sorted(present) != sorted(sites):
        raise ConfigError(
            f"Cannot assign folders to sites: federation.sites = {toml_names(sites)}, "
            f"but the folders with images in {root} are {', '.join(present)}. Write "
            f"sites = {toml_names(present)} into [federation]."
        )
    layout = {site: _subfolder_names(root / site) for site in sites}
    classes = _all_names(layout)
    train: dict[Path, int | None] = {}
    site_of: dict[Path, int] = {}
    for position, site in enumerate(sites):
        if not layout[site]:
            raise ValueError(
                f"Cannot read images: {root / site} must have a sub-folder of images "
                "for each class of this site. Put them there."
            )
        for name in layout[site]:
            images = list_images(root / site / name)
            train |= dict.fromkeys(images, classes.index(name))
            site_of |= dict.fromkeys(images, position)
    tested: dict[Path, int | None] = {}
    for folder in _class_folders(test, classes):
        _refuse_new_classes(folder.parent, classes)
        tested |= dict.fromkeys(list_images(folder), classes.index(folder.name))
    return ImageFiles(root, train, tested, tuple(classes), site_of)


def _class_folders(test: Path | None, classes: Sequence[str]) -> Iterator[Path]:
    """Those of test images: TEST/CLASS, or TEST/SITE/CLASS."""
    if test is None:
        return
    for folder in subfolders(test):
        if folder.name in classes:
            yield folder
        else:
            yield from subfolders(folder)


def toml_names(names: Sequence[str]) -> str:
    """["berlin", "paris"]."""
    return json.dumps(list(names), ensure_ascii=False)


def site_layout(root: Path) -> dict[str, list[str]]:
    """The sub-folders of each folder, if these may be sites and their sub-folders the
    classes, else {}.

    That is where every folder has sub-folders with images, of at least two names, one
    of which occurs twice.
    """
    layout = {name: _subfolder_names(root / name) for name in _subfolder_names(root)}
    classes = _all_names(layout)
    repeated = 1 < len(classes) < sum(map(len, layout.values()))
    if len(layout) > 1 and all(layout.values()) and repeated:
        return layout
    return {}


def _all_names(layout: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of all sub-folders in a layout, sorted."""
    return sorted({name for names in layout.values() for name in names})


def _refuse_site_folders(root: Path) -> None:
    layout = site_layout(root)
    if not layout:
        return
    sites = list(layout)
    raise ConfigError(
        f"Cannot read {root}: it is unclear whether {_some(sites)} are sites or "
        f"classes. They share the sub-folders {_some(_all_names(layout))}. Write "
        'options = {folders = "classes"} into [data] if they are classes. If they are '
        'sites, write partition = "folders" into [data] and sites = '
        f"{toml_names(sites)} into [federation]: one client for each, with its "
        "sub-folders as classes."
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + ", …" * (len(names) > 5)


def find_splits(path: Path) -> tuple[str, str]:
    """(train, test or ""), where all sub-folders with images are parts of a data set,
    else ("", "").
    """
    names = set(_subfolder_names(path))
    if "train" not in names or not names <= SPLIT_FOLDERS:
        return "", ""
    return "train", "test" * ("test" in names)


def subfolder(path: Path, name: str) -> Path:
    """A part of the data set, which the settings name. With no name, all of it."""
    if name and not (path / name).is_dir():
        raise ConfigError(
            f"Cannot read the images: there is no folder {path / name}. Correct split "
            "and test in data.options."
        )
    return path / name


def subfolders(root: Path) -> list[Path]:
    """Those that hold an image and are not hidden."""
    entries = [entry for entry in sorted(root.iterdir()) if not _is_hidden(entry.name)]
    return [entry for entry in entries if entry.is_dir() and any(_images_below(entry))]


def _subfolder_names(root: Path) -> list[str]:
    return [folder.name for folder in subfolders(root)]


def _refuse_new_classes(test: Path, names: Sequence[str]) -> None:
    """A class that only the test has would never be learned, and its images must not
    vanish.
    """
    unknown = [name for name in _subfolder_names(test) if names and name not in names]
    if unknown:
        raise ValueError(
            f"Cannot read the test images: {test} has the class {', '.join(unknown)}, "
            f"of which there is no training image. The classes are {', '.join(names)}. "
            "Rename or remove that folder, or give it training images."
        )


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
        images = filter(_is_image, (*folders, *files))
        yield from (Path(parent, name) for name in images)
        searched = [name for name in folders if not _is_hidden(name)]
        folders[:] = [name for name in searched if not _is_image(name)]


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not _is_hidden(name)


def _is_hidden(name: str) -> bool:
    """.ipynb_checkpoints, .thumbnails, ._copy.png, __MACOSX."""
    return name.startswith((".", "__"))

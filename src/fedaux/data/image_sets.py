"""Published sets of images in their original files, as uint8 (N, H, W, C)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedaux.data.arrays import Block, convert, load_pickle, require_file
from fedaux.data.image_folders import ImageFiles, list_images
from fedaux.data.images import PixelFormat, crop_and_resize, read_image_files
from fedaux.data.records import Corpus, Records


def cifar10(path: Path) -> Corpus:
    """CIFAR-10, python or binary version (Krizhevsky 2009)."""
    root = find_subfolder(path, "cifar-10-batches-py", "cifar-10-batches-bin")
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    meta = ("batches.meta", "label_names", "batches.meta.txt")
    return _cifar("CIFAR-10", root, [*batches, "test_batch"], "labels", meta, (1, 0))


def cifar100(path: Path, labels: str = "fine") -> Corpus:
    """CIFAR-100, python or binary version. `labels` is "fine" (100 classes) or "coarse"
    (20).
    """
    if labels not in ("fine", "coarse"):
        raise ValueError(
            f"Cannot read CIFAR-100: labels={labels!r} must be 'fine' (100 classes) or "
            "'coarse' (20 classes). Choose one of them."
        )
    root = find_subfolder(path, "cifar-100-python", "cifar-100-binary")
    meta = ("meta", f"{labels}_label_names", f"{labels}_label_names.txt")
    layout = (2, int(labels == "fine"))
    names = ["train", "test"]
    return _cifar("CIFAR-100", root, names, f"{labels}_labels", meta, layout)


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
    binary = (root / f"{names[0]}.bin").exists()
    suffix = ".bin" * binary
    what = f"{title}, python or binary version"
    files = [require_file(root / f"{name}{suffix}", what) for name in names]

    def read(file: Path) -> Iterator[Block]:
        if binary:
            rows = np.fromfile(file, dtype=np.uint8).reshape(-1, label_bytes + 3072)
            planes = rows[:, label_bytes:]
            labels = rows[:, column].astype(np.int64)
        else:
            batch = load_pickle(file)
            planes = batch["data"]
            labels = np.array(batch[key], dtype=np.int64)
        yield _to_images(planes), labels

    pickled, entry, listed = meta
    classes = _lines(root / listed)
    if (root / pickled).exists():
        classes = load_pickle(root / pickled)[entry]
    kind = title.lower().replace("-", "")
    return convert(kind, read, files[:-1], files[-1:], classes, key)


def stl10(path: Path, part: str = "train", size: int | None = None) -> Corpus:
    """STL-10, binary version (Coates et al. 2011): `part` "train" (labelled, with its
    test set) or "unlabeled".

    The 96×96 file is memory-mapped. `size=32` writes a resized copy once.
    """
    root = find_subfolder(path, "stl10_binary")
    labelled = part == "train"
    names = [part]
    classes: list[str] = []
    if labelled:
        names.append("test")
        classes = _lines(root / "class_names.txt")
    what = "STL-10, binary version"
    files = [require_file(root / f"{name}_X.bin", what) for name in names]

    def records(file: Path) -> Records:
        # planes are column-major
        planes = np.memmap(file, dtype=np.uint8, mode="r").reshape(-1, 3, 96, 96)
        x = planes.transpose(0, 3, 2, 1)
        if not labelled:
            return Records(x)
        numbers = np.fromfile(file.with_name(file.name.replace("_X", "_y")), np.uint8)
        return Records(x, numbers.astype(np.int64) - 1)

    def read(file: Path) -> Iterator[Block]:
        full = records(file)
        for block in full.blocks(1000):
            images = map(Image.fromarray, full.gather(block))
            resized = [crop_and_resize(image, size, "RGB") for image in images]
            labels = None if full.y is None else full.y[block]
            yield np.stack(resized), labels

    if size:
        return convert("stl10", read, files[:1], files[1:], classes, size)
    if not labelled:
        return Corpus(records(files[0]))
    return Corpus(records(files[0]), records(files[1]), tuple(classes))


def tinyimagenet(
    path: Path, wnids: Sequence[str] = (), size: int | None = None
) -> Corpus:
    """Tiny ImageNet (200 classes, 64×64), or its classes `wnids` in that order. The
    validation set is the test set.
    """
    root = find_subfolder(path, "tiny-imagenet-200")
    training = require_file(root / "train", "Tiny ImageNet")
    folders = {folder.name: folder for folder in sorted(training.iterdir())}
    wnids = list(wnids or folders)
    train: dict[Path, int] = {}
    for label, folder in enumerate(_select(folders, wnids)):
        train |= dict.fromkeys(list_images(folder), label)
    test: dict[Path, int] = {}
    for line in _lines(root / "val" / "val_annotations.txt"):
        file, wnid = line.split("\t")[:2]
        if wnid in wnids:
            test[root / "val" / "images" / file] = wnids.index(wnid)
    titles = dict(line.split("\t", 1) for line in _lines(root / "words.txt"))
    classes = tuple(titles.get(wnid, wnid) for wnid in wnids)
    files = ImageFiles(root, train, test, classes)
    corpus, _ = read_image_files("tinyimagenet", files, PixelFormat(size))
    return corpus


def find_subfolder(path: Path, *names: str) -> Path:
    """The first of these sub-folders that exists, else `path` itself."""
    return next((path / name for name in names if (path / name).is_dir()), path)


def _to_images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Consecutive colour planes (N, 3·S·S) → (N, S, S, 3)."""
    side = round((rows.shape[1] / 3) ** 0.5)
    return rows.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)


def _lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    return [line for line in file.read_text("utf-8").splitlines() if line]


def _select(known: Mapping[str, Path], wnids: Sequence[str]) -> list[Path]:
    unknown = [wnid for wnid in wnids if wnid not in known]
    if unknown:
        raise ValueError(
            f"Cannot choose classes: there is no WordNet id {', '.join(unknown)} here. "
            f"There are {', '.join(list(known)[:5])}, . Choose from these."
        )
    return [known[wnid] for wnid in wnids]

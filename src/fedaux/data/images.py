"""Published image datasets in their original files, as a memory-mapped `Corpus` of uint8 (N, H, W, C)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedaux.data.arrays import Block, convert, require_file
from fedaux.data.image_folder import crop_and_resize, image_files, list_images
from fedaux.data.pickles import load_pickle
from fedaux.data.records import Corpus, Records


def cifar10(path: Path) -> Corpus:
    """CIFAR-10, python or binary version (Krizhevsky 2009)."""
    root = find_subfolder(path, "cifar-10-batches-py", "cifar-10-batches-bin")
    files = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return _cifar("CIFAR-10", root, files, "labels", ("batches.meta", "label_names", "batches.meta.txt"), (1, 0))


def cifar100(path: Path, labels: str = "fine") -> Corpus:
    """CIFAR-100, python or binary version; `labels` is "fine" (100 classes) or "coarse" (20)."""
    if labels not in ("fine", "coarse"):
        raise ValueError(f"labels={labels!r} must be 'fine' (100 classes) or 'coarse' (20 classes)")
    root = find_subfolder(path, "cifar-100-python", "cifar-100-binary")
    meta = ("meta", f"{labels}_label_names", f"{labels}_label_names.txt")
    return _cifar("CIFAR-100", root, ["train", "test"], f"{labels}_labels", meta, (2, int(labels == "fine")))


def _cifar(
    title: str, root: Path, names: list[str], key: str, meta: tuple[str, str, str], layout: tuple[int, int]
) -> Corpus:
    """Pickles with `data` and `key`, or `.bin` rows: label bytes (`layout`: how many, which one), then planes."""
    label_bytes, column = layout
    suffix = ".bin" if (root / f"{names[0]}.bin").exists() else ""
    files = [require_file(root / f"{name}{suffix}", f"{title}, python or binary version") for name in names]

    def read(file: Path) -> Iterator[Block]:
        if suffix:
            rows = np.fromfile(file, dtype=np.uint8).reshape(-1, label_bytes + 3072)
            yield _to_images(rows[:, label_bytes:]), rows[:, column].astype(np.int64)
        else:
            batch = load_pickle(file)
            yield _to_images(batch["data"]), np.array(batch[key], dtype=np.int64)

    classes = load_pickle(root / meta[0])[meta[1]] if (root / meta[0]).exists() else _lines(root / meta[2])
    return convert(title.lower().replace("-", ""), read, files[:-1], files[-1:], classes, key)


def stl10(path: Path, part: str = "train", size: int | None = None) -> Corpus:
    """STL-10, binary version (Coates et al. 2011): `part` "train" (labelled, with its test set) or "unlabeled".

    The 96×96 file is memory-mapped; `size=32` writes a resized copy once.
    """
    root = find_subfolder(path, "stl10_binary")
    parts = ["train", "test"] if part == "train" else [part]
    files = [require_file(root / f"{name}_X.bin", "STL-10, binary version") for name in parts]

    def records(file: Path) -> Records:
        planes = np.memmap(file, dtype=np.uint8, mode="r").reshape(-1, 3, 96, 96)  # planes are column-major
        labels = file.with_name(file.name.replace("_X", "_y"))
        y = np.fromfile(labels, np.uint8).astype(np.int64) - 1 if part == "train" else None
        return Records(planes.transpose(0, 3, 2, 1), y)

    def read(file: Path) -> Iterator[Block]:
        full = records(file)
        for block in full.blocks(1000):
            resized = np.stack([crop_and_resize(Image.fromarray(image), size, "RGB") for image in full.gather(block)])
            yield resized, None if full.y is None else full.y[block]

    classes = _lines(root / "class_names.txt") if part == "train" else []
    if size:
        return convert("stl10", read, files[:1], files[1:], classes, size)
    return Corpus(records(files[0]), records(files[1]) if part == "train" else None, tuple(classes))


def svhn(path: Path, part: str = "train") -> Corpus:
    """SVHN, format 2 (Netzer et al. 2011): `part` "train" or "extra"; the label 10 means the digit 0."""
    from scipy.io import loadmat

    def read(file: Path) -> Iterator[Block]:
        content = loadmat(file)
        yield content["X"].transpose(3, 0, 1, 2), content["y"].reshape(-1).astype(np.int64) % 10

    files = [require_file(path / f"{name}_32x32.mat", "SVHN, format 2 (cropped digits)") for name in (part, "test")]
    return convert("svhn", read, files[:1], files[1:], [str(digit) for digit in range(10)])


def imagenet32(
    path: Path, wnids: Sequence[str] = (), classes: Sequence[int] = (), names: str = "map_clsloc.txt"
) -> Corpus:
    """Downsampled ImageNet of any size: the pickles train_data_batch_* and val_data (Chrabaszcz et al. 2017).

    `classes` (1..1000, as in the files) or `wnids` (WordNet ids) select a subset, labelled from 0 in that order. Lines
    of the file `names` read `n02119789 1 kit_fox`.
    """
    train = sorted(path.glob("train_data_batch_*"), key=lambda file: int(file.name.rpartition("_")[2]))
    train = train or [require_file(path / "train_data_batch_1", "downsampled ImageNet, python version")]
    lines = [line.split() for line in _lines(path / names)]
    if wnids:
        require_file(path / names, "the list of WordNet ids, class numbers and names")
        classes = _select({line[0]: int(line[1]) for line in lines}, wnids)
    selected = list(classes) or list(range(1, 1001))
    position = np.full(1001, -1)
    position[selected] = np.arange(len(selected))

    def read(file: Path) -> Iterator[Block]:
        batch = load_pickle(file)
        labels = position[np.array(batch["labels"])]
        yield _to_images(batch["data"])[labels >= 0], labels[labels >= 0]

    titles = {int(line[1]): line[2] for line in lines}
    class_names = [titles.get(number, str(number)) for number in selected]
    return convert("imagenet32", read, train, list(path.glob("val_data")), class_names, selected)


def tinyimagenet(path: Path, wnids: Sequence[str] = (), size: int | None = None) -> Corpus:
    """Tiny ImageNet (200 classes, 64×64), or its classes `wnids` in that order; the validation set is the test set."""
    root = find_subfolder(path, "tiny-imagenet-200")
    folders = {folder.name: folder for folder in sorted(require_file(root / "train", "Tiny ImageNet").iterdir())}
    wnids = list(wnids or folders)
    train = {file: label for label, folder in enumerate(_select(folders, wnids)) for file in list_images(folder)}
    annotations = [line.split("\t")[:2] for line in _lines(root / "val" / "val_annotations.txt")]
    test = {root / "val" / "images" / file: wnids.index(wnid) for file, wnid in annotations if wnid in wnids}
    titles = dict(line.split("\t", 1) for line in _lines(root / "words.txt"))
    return image_files("tinyimagenet", train, test, [titles.get(wnid, wnid) for wnid in wnids], size, "RGB")[0]


def find_subfolder(path: Path, *names: str) -> Path:
    """The first of these sub-folders that exists, else `path` itself."""
    return next((path / name for name in names if (path / name).is_dir()), path)


def _to_images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Consecutive colour planes (N, 3·S·S) → (N, S, S, 3)."""
    side = round((rows.shape[1] / 3) ** 0.5)
    return rows.reshape(-1, 3, side, side).transpose(0, 2, 3, 1)


def _lines(file: Path) -> list[str]:
    return [line for line in file.read_text("utf-8").splitlines() if line] if file.exists() else []


def _select(known: Mapping[str, Any], wnids: Sequence[str]) -> list[Any]:
    unknown = [wnid for wnid in wnids if wnid not in known]
    if unknown:
        raise ValueError(f"no WordNet id {', '.join(unknown)} here; there are {', '.join(list(known)[:5])}, ...")
    return [known[wnid] for wnid in wnids]

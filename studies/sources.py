"""The data sets of the studies as sources: `source = "studies.sources:cifar10"`. They
lie outside the project.

`FEDAUX_DATA` names their folder (default `../shared/data` beside the repository); it
brings a `load_data.py` that reads its own files.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.data.records import Corpus, Records
from fedaux.data.text import csv_text

ROOT = Path(
    os.environ.get("FEDAUX_DATA")
    or Path(__file__).resolve().parents[2] / "shared" / "data"
)
CIFAR10 = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

# 28×28, one channel
GREY = {"fashion-mnist": "fashion_mnist_train.npz", "mnist": "mnist_train.npz"}


def cifar10(limit: int = 50_000, test_limit: int = 10_000) -> Corpus:
    """CIFAR-10: 50,000 and 10,000 images, or the first so many; their order is random
    as it is.
    """
    return Corpus(
        _first("cifar10_train.webp.npz", limit),
        _first("cifar10_test.webp.npz", test_limit),
        CIFAR10,
    )


def tinyimagenet() -> Corpus:
    """24,000 images of Tiny-ImageNet at 32×32, without labels."""
    return Corpus(Records(load("tinyimagenet32_24k.webp.npz")[0]))


def fashion_mnist(limit: int = 20_000, test_limit: int = 5000) -> Corpus:
    """20,000 and 5,000 images of clothes in ten classes, 28×28, or the first so
    many.
    """
    return Corpus(
        _first("fashion_mnist_train.npz", limit),
        _first("fashion_mnist_test.npz", test_limit),
    )


def pneumonia() -> Corpus:
    """4,707 and 624 chest X-rays of children, 28×28, with pneumonia or without."""
    return Corpus(
        _first("pneumoniamnist_train.npz", 4707), _first("pneumoniamnist_test.npz", 624)
    )


def mnist() -> Corpus:
    """10,000 handwritten digits, 28×28, without labels."""
    return Corpus(Records(load("mnist_train.npz")[0]))


def auxiliary(name: str, limit: int = 2280) -> Corpus:
    """Public images for 32×32 clients in colour, as many of each kind: "tiny-imagenet",
    one of its groups ("device", "invertebrate", "structure", "mammal"), "fashion-mnist"
    or "mnist".
    """
    if name in GREY:
        grey = np.pad(load(GREY[name])[0][:limit], ((0, 0), (2, 2), (2, 2), (0, 0)))
        return Corpus(Records(np.repeat(grey, 3, axis=3)))
    x, y = load("tinyimagenet32_24k.webp.npz")
    assert y is not None
    groups = np.load(_file("tinyimagenet32_24k.webp.npz"))["group"]
    chosen = (
        np.arange(len(x))
        if name == "tiny-imagenet"
        else np.flatnonzero(groups[y] == name)
    )
    if not len(chosen):
        raise ValueError(
            f"no public images called {name!r}: tiny-imagenet, "
            f"{', '.join([*sorted(set(groups)), *GREY])}"
        )
    return Corpus(
        Records(x[np.sort(np.random.default_rng(0).permutation(chosen)[:limit])])
    )


def ag_news(limit: int = 0) -> Corpus:
    """AG News: 14,547 headlines with their first sentences in four topics, and the
    official 7,600 test records.

    With a `limit`, the first so many of both.
    """
    whole = csv_text(
        _file("ag_news_train.csv.gz"), test=str(_file("ag_news_test.csv.gz"))
    )
    assert whole.test is not None
    if not limit:
        return whole
    first = np.arange(limit)
    return Corpus(whole.train.take(first), whole.test.take(first), whole.classes)


def amazon() -> Corpus:
    """7,852 reviews of books, films, electronics and kitchenware with 1, 2, 4 or 5
    stars.
    """
    return csv_text(
        _file("amazon_reviews.csv.gz"), text=("title", "text"), label="rating"
    )


def books() -> Corpus:
    """58,275 sentences of 100 public-domain novels."""
    return csv_text(_file("books_unlabelled.csv.gz"), label="")


@cache
def load(name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None]:
    """(x, y) of one file of images, read by the folder's own `load_data.py`."""
    spec = importlib.util.spec_from_file_location("load_data", _file("load_data.py"))
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = module.load(_file(name))
    return x, y


def _first(name: str, count: int) -> Records:
    """As an array of their own: features are computed for whole arrays."""
    x, y = load(name)
    return Records(x[:count], None if y is None else y[:count])


def _file(name: str) -> Path:
    path = ROOT / name
    if not path.is_file():
        raise FileNotFoundError(
            f"no {path}; set FEDAUX_DATA to the folder with the data sets of the "
            "studies"
        )
    return path

"""One data set as three hospitals would have it: very different class shares, a public
part, and a test part.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedaux import Corpus, Records, open_source

HOSPITALS = ("berlin", "paris", "rome")
STRAY = 0.05  # of each class, the share that is treated elsewhere than at its home


def open_set(data: Path | None) -> Corpus:
    """A MedMNIST file (train_images, train_labels, test_images, test_labels); without
    one, digits are used.
    """
    return open_source("npz", data) if data else open_source("digits")


def class_names(corpus: Corpus) -> tuple[str, ...]:
    """What labels are called where nobody has said it."""
    return corpus.classes or tuple(map(str, range(int(corpus.train.labels.max()) + 1)))


def split(
    corpus: Corpus, folder: Path, classes: tuple[str, ...], seed: int = 0
) -> None:
    """Write sites/NAME/records, server/public (40 % of the training part, no labels)
    and server/test below `folder`.
    """
    rng = np.random.default_rng(seed)
    rows, test = rng.permutation(len(corpus.train)), corpus.test
    if test is None:
        held, rows = np.split(rows, [len(rows) // 5])
        test = corpus.train.take(held)
    public, private = np.split(rows, [2 * len(rows) // 5])
    write(corpus.train.take(public).unlabelled(), folder / "server" / "public")
    write(test, folder / "server" / "test")
    parts = deal(corpus.train.labels[private], len(classes), rng)
    for name, part in zip(HOSPITALS, parts, strict=True):
        own = corpus.train.take(private[part])
        write(own, folder / "sites" / name / "records")
        counts = np.bincount(own.labels, minlength=len(classes))
        print(
            f"{name}: "
            f"{', '.join(f'{n} {c}' for c, n in zip(classes, counts, strict=True))}"
        )


def deal(
    labels: np.ndarray, classes: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Rows for each hospital. Every class has a home, of two classes the second has
    two; few records stray.
    """
    parts: list[list[np.ndarray]] = [[] for _ in HOSPITALS]
    for one in range(classes):
        home = np.array(
            [place % classes == (classes - 1 - one) % 3 for place in range(3)]
        )
        shares = np.where(home, (1 - STRAY) / home.sum(), STRAY / (~home).sum())
        rows = rng.permutation(np.flatnonzero(labels == one))
        cuts = np.rint(shares.cumsum()[:-1] * len(rows)).astype(int)
        for part, cut in zip(parts, np.split(rows, cuts), strict=True):
            part.append(cut)
    return [rng.permutation(np.concatenate(part)) for part in parts]


def write(records: Records, folder: Path) -> None:
    """The folder that `source = "npy"` reads. Labels are numbers; data.classes in the
    settings says what they mean.
    """
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", records.gather())
    if records.y is not None:
        np.save(folder / "y.npy", records.labels)

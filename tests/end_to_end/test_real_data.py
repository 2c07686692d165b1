"""Published data in its own formats, where FEDAUX_DATA has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaux.data.sources import open_source
from helpers.pictures import check, dump_python2, planes
from helpers.shared_data import ROOT, load, needs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))


@needs("cifar10_test.webp.npz")
def test_real_cifar10_survives_its_own_formats(tmp_path):
    x, y = load("cifar10_test.webp.npz")
    x, y = x[:600], y[:600]
    for i, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        rows = slice(100 * i, 100 * i + 100)
        dump_python2(
            {b"data": planes(x[rows]), b"labels": y[rows].tolist()}, tmp_path / name
        )
    corpus = open_source("cifar10", tmp_path)
    check(corpus.train, x[:500], y[:500])
    check(corpus.test, x[500:], y[500:])


@needs("pneumoniamnist_train.npz", "pneumoniamnist_test.npz")
def test_real_hospital_images():
    corpus = open_source(
        "npz",
        ROOT / "pneumoniamnist_train.npz",
        test=str(ROOT / "pneumoniamnist_test.npz"),
    )
    x, y = load("pneumoniamnist_train.npz")
    assert np.array_equal(corpus.train.gather(), x)
    assert np.array_equal(corpus.train.labels, y)
    assert len(corpus.test) == 624
    assert corpus.classes == ()


@needs("ag_news_train.csv.gz", "ag_news_test.csv.gz")
def test_real_news():
    corpus = open_source(
        "csv", ROOT / "ag_news_train.csv.gz", test=str(ROOT / "ag_news_test.csv.gz")
    )
    assert (len(corpus.train), len(corpus.test), len(corpus.classes)) == (
        14_547,
        7_600,
        4,
    )
    assert corpus.train.x[0].startswith("Mickelson not giving up")
    assert corpus.test.labels.max() == 3

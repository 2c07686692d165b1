"""Datasets of other libraries, with the libraries themselves where they are installed."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from fedaux.core.errors import MissingPackageError
from fedaux.data.adapters import from_huggingface, from_torch, huggingface
from fedaux.data.record_spec import RecordsError
from fedaux.data.sources import open_source
from helpers.pictures import pictures, save_png

X = pictures(4, 6)


class Pictures(Dataset[Any]):
    """As torchvision's: PIL images, a list `classes`, and no more than `__getitem__` and `__len__`."""

    classes = ("cat", "dog")

    def __init__(self, count: int = 4) -> None:
        self.x = X[:count]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.x[index]), index % 2


def test_images_of_a_torch_dataset() -> None:
    corpus = from_torch(Pictures(), Pictures(2))
    assert np.array_equal(corpus.train.x, X)
    assert (corpus.train.labels.tolist(), corpus.classes) == ([0, 1, 0, 1], ("cat", "dog"))
    assert corpus.test is not None
    assert len(corpus.test) == 2
    assert from_torch(Pictures(), size=3, mode="L", classes=("a", "b")).train.x.shape == (4, 3, 3, 1)


def test_tensors_from_0_to_1_become_images_and_others_stay_numbers() -> None:
    x = torch.from_numpy(X).permute(0, 3, 1, 2)
    as_floats = TensorDataset(x / 255, torch.tensor([0, 1, 0, 1]))
    assert np.array_equal(from_torch(as_floats).train.x, X)
    assert np.array_equal(from_torch(TensorDataset(x, torch.arange(4))).train.x, X)
    normalised = from_torch(TensorDataset(x / 63.75 - 2)).train
    assert (normalised.x.dtype, normalised.x.shape, normalised.y) == (np.float32, (4, 3, 6, 6), None)
    table = from_torch(TensorDataset(torch.randn(5, 7, dtype=torch.float64), torch.arange(5))).train
    assert (table.x.dtype, table.shape) == (np.float32, (7,))


def test_what_cannot_be_stacked_says_so() -> None:
    odd = [(np.zeros((4, 4, 3), np.uint8), 0), (np.zeros((5, 4, 3), np.uint8), 1)]
    with pytest.raises(RecordsError, match="size=32 crops and shrinks"):
        from_torch(odd)
    with pytest.raises(RecordsError, match="is empty"):
        from_torch([])


def test_folders_of_torchvision(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets", reason="torchvision is not installed")
    for name in ("cat", "dog"):
        save_png(tmp_path / name / "1.png", X[0])
    corpus = from_torch(datasets.ImageFolder(tmp_path))
    assert corpus.classes == ["cat", "dog"] or corpus.classes == ("cat", "dog")
    assert np.array_equal(corpus.train.x, open_source("images", tmp_path).train.x)


def test_a_dataset_of_hugging_face_from_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {"image": [Image.fromarray(x) for x in X], "label": [0, 1, 1, 0]}
    train = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": train, "test": train.select([1, 2])}).save_to_disk(str(tmp_path / "saved"))
    corpus = open_source("huggingface", tmp_path / "saved")
    assert np.array_equal(corpus.train.x, X)
    assert (corpus.train.labels.tolist(), corpus.classes) == ([0, 1, 1, 0], ("cat", "dog"))
    assert corpus.test is not None
    assert corpus.test.labels.tolist() == [1, 1]


def test_texts_of_hugging_face_with_words_for_labels() -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    texts = datasets.Dataset.from_dict({"body": ["good", "bad", "fine"], "kind": ["+", "-", "+"]})
    corpus = from_huggingface(texts, record="body", label="kind")
    assert corpus.train.x.tolist() == ["good", "bad", "fine"]
    assert (corpus.train.labels.tolist(), corpus.classes) == ([0, 1, 0], ("+", "-"))
    assert from_huggingface(texts, record="body").train.y is None
    with pytest.raises(RecordsError, match="has columns body, kind"):
        from_huggingface(texts)
    with pytest.raises(RecordsError, match="the class '\\?'"):
        from_huggingface(texts, datasets.Dataset.from_dict({"body": ["x"], "kind": ["?"]}), record="body", label="kind")


def test_partitions_of_flower_datasets() -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    partitioners = pytest.importorskip("flwr_datasets.partitioner", reason="flwr-datasets is not installed")
    partitioner = partitioners.IidPartitioner(num_partitions=2)
    partitioner.dataset = datasets.Dataset.from_dict({"text": [f"t{i}" for i in range(6)], "label": [0, 1] * 3})
    parts = [from_huggingface(partitioner.load_partition(i)).train for i in range(2)]
    assert sorted(text for part in parts for text in part.x) == [f"t{i}" for i in range(6)]
    assert all(len(part.labels) == 3 for part in parts)


def test_without_the_library_the_source_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fedaux\[datasets\]'"):
        huggingface(tmp_path)

"""Datasets of other libraries, with the libraries themselves where they are
installed.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import MissingPackageError
from fedaux.data.adapters import from_huggingface, from_torch, huggingface
from fedaux.data.labels import DeclaredClasses
from fedaux.data.records import Records, RecordsError, RecordSpec
from fedaux.data.samples import read_one_by_one
from fedaux.data.sources import open_source
from helpers.pictures import pictures

X = pictures(4, 6)


@pytest.fixture
def datasets() -> Any:
    return pytest.importorskip(
        "datasets", reason="Hugging Face datasets is not installed"
    )


class Pictures(Dataset[Any]):
    """As torchvision's: PIL images, a list `classes`, and no more than `__getitem__`
    and `__len__`.
    """

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
    assert (corpus.train.labels.tolist(), corpus.classes) == (
        [0, 1, 0, 1],
        ("cat", "dog"),
    )
    assert corpus.test is not None
    assert len(corpus.test) == 2
    assert from_torch(
        Pictures(), size=3, mode="L", classes=("a", "b")
    ).train.x.shape == (4, 3, 3, 1)


def test_tensors_from_0_to_1_become_images_and_others_stay_numbers() -> None:
    x = torch.from_numpy(X).permute(0, 3, 1, 2)
    as_floats = TensorDataset(x / 255, torch.tensor([0, 1, 0, 1]))
    assert np.array_equal(from_torch(as_floats).train.x, X)
    assert np.array_equal(from_torch(TensorDataset(x, torch.arange(4))).train.x, X)
    normalised = from_torch(TensorDataset(x / 63.75 - 2)).train
    assert (normalised.x.dtype, normalised.x.shape, normalised.y) == (
        np.float32,
        (4, 3, 6, 6),
        None,
    )
    table = from_torch(
        TensorDataset(torch.randn(5, 7, dtype=torch.float64), torch.arange(5))
    ).train
    assert (table.x.dtype, table.shape) == (np.float32, (7,))


def test_items_have_labels_only_if_each_has_one() -> None:
    rows = [(X[0], 1), (X[1], 0)]
    assert from_torch(rows).train.labels.tolist() == [1, 0]
    assert from_torch([rows[0], (X[1],)]).train.y is None
    assert from_torch(list(X)).train.y is None


def test_what_cannot_be_stacked_says_so() -> None:
    odd = [(np.zeros((4, 4, 3), np.uint8), 0), (np.zeros((5, 4, 3), np.uint8), 1)]
    with pytest.raises(RecordsError, match="size=32, which crops and shrinks"):
        from_torch(odd)
    with pytest.raises(RecordsError, match="is empty"):
        from_torch([])
    # a tensor that happens to lie between 0 and 1
    with pytest.raises(RecordsError, match="or not all images"):
        from_torch(
            TensorDataset(
                torch.stack([torch.zeros(3, 4, 4), torch.full((3, 4, 4), -1.0)])
            )
        )


def test_a_dataset_of_hugging_face_from_disk(datasets: Any, tmp_path: Path) -> None:
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {"image": [Image.fromarray(x) for x in X], "label": [0, 1, 1, 0]}
    train = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": train, "test": train.select([1, 2])}).save_to_disk(
        str(tmp_path / "saved")
    )
    corpus = open_source("huggingface", tmp_path / "saved")
    assert np.array_equal(corpus.train.x, X)
    assert (corpus.train.labels.tolist(), corpus.classes) == (
        [0, 1, 1, 0],
        ("cat", "dog"),
    )
    assert corpus.test is not None
    assert corpus.test.labels.tolist() == [1, 1]


def test_texts_of_hugging_face_with_words_for_labels(datasets: Any) -> None:
    texts = datasets.Dataset.from_dict(
        {"body": ["good", "bad", "fine"], "kind": ["+", "-", "+"]}
    )
    corpus = from_huggingface(texts, record="body", label="kind")
    assert corpus.train.x.tolist() == ["good", "bad", "fine"]
    assert (corpus.train.labels.tolist(), corpus.classes) == ([0, 1, 0], ("+", "-"))
    assert from_huggingface(texts, record="body").train.y is None
    with pytest.raises(RecordsError, match="has columns body, kind"):
        from_huggingface(texts)
    with pytest.raises(RecordsError, match="the class '\\?'"):
        from_huggingface(
            texts,
            datasets.Dataset.from_dict({"body": ["x"], "kind": ["?"]}),
            record="body",
            label="kind",
        )


def test_a_record_without_a_label_is_named(datasets: Any) -> None:
    """It became a class of its own, called nothing."""
    with pytest.raises(
        RecordsError,
        match=r"record 1 has no label\. Take such records out",
    ):
        from_huggingface(
            datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, None]})
        )


def test_splits_and_persons_of_hugging_face(datasets: Any, tmp_path: Path) -> None:
    parts = {
        name: datasets.Dataset.from_dict(
            {"text": [name] * 3, "label": [0, 1, 0], "who": ["ann", None, "ann"]}
        )
        for name in ("train", "extra")
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    for declared in ((), ("flu", "cold")):
        for split in parts:
            found = open_source(
                "huggingface",
                tmp_path / "saved",
                split=split,
                person="who",
                declared=declared,
            ).train
            assert (set(found.x), found.labels.tolist()) == ({split}, [0, 1, 0])
            assert found.persons.tolist() == [0, 1, 0]
        assert (
            open_source(
                "huggingface", tmp_path / "saved", declared=declared
            ).train.person
            is None
        )
        with pytest.raises(
            ConfigError,
            match=r"it has train, extra, but no 'val'. Name one with split=…\.",
        ):
            open_source(
                "huggingface", tmp_path / "saved", split="val", declared=declared
            )
        with pytest.raises(RecordsError, match="has columns text, label, who"):
            open_source(
                "huggingface", tmp_path / "saved", person="whom", declared=declared
            )


def test_labels_of_hugging_face_at_a_site(datasets: Any) -> None:
    texts = ["a", "b", "c", None]

    def labels(values: list[Any], feature: Any = None) -> list[int]:
        made = datasets.Dataset.from_dict({"text": texts, "label": values})
        made = made.cast_column("label", feature) if feature else made
        return from_huggingface(made, declared=("flu", "cold")).train.labels.tolist()

    assert labels([0, 1, 2, None]) == [0, 1, -1, -1]
    assert labels([0.0, 1.0, float("nan"), 0.5]) == [0, 1, -1, -1]
    assert labels(["cold", "flu", "aids", None]) == [1, 0, -1, -1]
    assert labels([True, False, True, None]) == [-1] * 4
    assert labels(
        [0, 1, 2, None], datasets.ClassLabel(names=["cold", "aids", "flu"])
    ) == [1, -1, 0, -1]


def test_what_a_record_is_must_be_known_at_a_site(
    datasets: Any, tmp_path: Path
) -> None:

    def read(feature: Any, values: list[Any], **options: Any) -> Any:
        features = datasets.Features({"x": feature, "label": datasets.Value("int64")})
        made = datasets.Dataset.from_dict(
            {"x": values, "label": [0] * len(values)}, features=features
        )
        return from_huggingface(made, declared=("flu", "cold"), **options).train.x

    number = datasets.Value("float32")
    assert read(number, [1.5, None]).tolist() == [1.5, 0.0]
    assert read(datasets.List(number, length=2), [[1, 2], None]).tolist() == [
        [1, 2],
        [0, 0],
    ]
    assert read(datasets.Array2D((1, 2), "int32"), [[[1, 2]]]).tolist() == [[[1, 2]]]
    assert read(datasets.List(number), [[1, 2], [1]], shape=(2,)).tolist() == [
        [1, 2],
        [0, 0],
    ]
    assert read(datasets.Value("string"), ["a", None]).tolist() == ["a", ""]
    for unknown in (
        datasets.List(number),
        datasets.Array2D((None, 2), "float32"),
        datasets.Value("binary"),
    ):
        with pytest.raises(
            ConfigError,
            match=r"the column 'x' is .*options = \{shape = 5\} for numbers",
        ):
            read(unknown, [])
    with pytest.raises(ConfigError, match="which does not state the shape of a record"):
        read(datasets.Image(), [Image.fromarray(X[0])])
    assert read(
        datasets.Image(), [Image.fromarray(X[0]), None], size=3, mode="L"
    ).shape == (2, 3, 3, 1)
    with pytest.raises(RecordsError, match="has columns text"):
        from_huggingface(
            datasets.Dataset.from_dict({"text": ["a"]}), declared=("flu", "cold")
        )


def test_images_of_hugging_face_are_the_same_at_a_site(datasets: Any) -> None:
    turned = Image.fromarray(X[0][:4])
    turned.getexif()[274] = 6  # taken with the camera on its side
    stream = io.BytesIO()
    turned.save(stream, "PNG", exif=turned.getexif())
    images = [Image.fromarray(X[1]), Image.open(stream)]
    made = datasets.Dataset.from_dict({"image": images, "label": [0, 1]}).cast_column(
        "image", datasets.Image()
    )
    simulated = from_huggingface(made, size=3).train.x
    assert np.array_equal(
        from_huggingface(made, size=3, declared=("flu", "cold")).train.x, simulated
    )
    assert np.array_equal(
        from_huggingface(
            made.with_format("torch"), size=3, declared=("flu", "cold")
        ).train.x,
        simulated,
    )


def test_a_torch_dataset_at_a_site() -> None:
    own = from_torch(Pictures(), declared=("dog", "cat"), size=6)
    assert np.array_equal(own.train.x, X)
    # by the names of the dataset
    assert (own.train.labels.tolist(), own.classes) == ([1, 0, 1, 0], ("dog", "cat"))
    x = torch.from_numpy(X).permute(0, 3, 1, 2)
    assert np.array_equal(
        from_torch(TensorDataset(x / 255), declared=("a", "b"), size=6).train.x, X
    )
    table = from_torch(
        TensorDataset(torch.ones(2, 7).double(), torch.arange(2)),
        declared=("a", "b"),
        shape="7",
    ).train
    assert (table.x.dtype, table.shape, table.labels.tolist()) == (
        np.float32,
        (7,),
        [0, 1],
    )
    with pytest.raises(
        ConfigError,
        match=r"Give from_torch size=32 for images, shape=\(5,\) for numbers, or text=True",
    ):
        from_torch(Pictures(), declared=("cat", "dog"))
    for shape in ("five", (0,), (2, -1)):
        with pytest.raises(
            ConfigError, match="must be the numbers of a record along each axis"
        ):
            from_torch(Pictures(), declared=("cat", "dog"), shape=shape)


def test_partitions_of_flower_datasets(datasets: Any) -> None:
    partitioners = pytest.importorskip(
        "flwr_datasets.partitioner", reason="flwr-datasets is not installed"
    )
    partitioner = partitioners.IidPartitioner(num_partitions=2)
    partitioner.dataset = datasets.Dataset.from_dict(
        {"text": [f"t{i}" for i in range(6)], "label": [0, 1] * 3}
    )
    parts = [from_huggingface(partitioner.load_partition(i)).train for i in range(2)]
    assert sorted(text for part in parts for text in part.x) == [
        f"t{i}" for i in range(6)
    ]
    assert all(len(part.labels) == 3 for part in parts)


def test_without_the_library_the_source_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPackageError, match=r"pip install -e '\.\[datasets\]'"):
        huggingface(tmp_path)


CLASSES = DeclaredClasses.of(("flu", "cold"))
GREY = np.arange(25, dtype=np.uint8).reshape(5, 5) * 10


def made(spec: RecordSpec, *values: Any) -> Records:
    return read_one_by_one(
        ((value, 0, None) for value in values), len(values), spec, CLASSES
    )


@pytest.mark.parametrize(
    "value",
    [
        GREY,
        GREY[..., None],
        GREY[None],
        GREY.tolist(),
        GREY.astype(np.int64),
        Image.fromarray(GREY),
        torch.from_numpy(GREY[None] / 255),
        torch.from_numpy(GREY / 255).float(),
        np.stack([GREY] * 3),
        np.stack([GREY] * 3, axis=-1),
    ],
)
def test_pixels_in_any_form_are_the_same_image(value: Any) -> None:
    found = made(RecordSpec("image", (5, 5, 1)), value)
    assert np.array_equal(found.x[0, ..., 0], GREY)
    assert found.labels.tolist() == [0]


@pytest.mark.parametrize(
    "value",
    [None, "a", 3, [], GREY * 1.0 * np.nan, GREY.astype(int) - 1, GREY.astype(int) + 200, GREY[:0], {}, {"bytes": b""},
     GREY[None, None], {"bytes": None, "path": "https://example.invalid/a.png"}, GREY.astype(complex)],
)  # fmt: skip
def test_what_is_no_image_is_blank_and_has_no_class(value: Any) -> None:
    found = made(RecordSpec("image", (5, 5, 1)), value, GREY)
    assert found.labels.tolist() == [-1, 0]
    assert found.x[0].max() == 0
    assert np.array_equal(found.x[1, ..., 0], GREY)


def test_numbers_beyond_0_to_1_are_clipped() -> None:
    found = made(
        RecordSpec("image", (2, 2, 1)), torch.tensor([[-5.0, 0.2], [0.4, 7.0]])
    )
    assert found.x[0, ..., 0].tolist() == [[0, 51], [102, 255]]


def test_numbers_of_one_shape() -> None:
    values = [
        [1, 2],
        (0.5, 1e300),
        torch.tensor([1, 2]),
        torch.ones(2, dtype=torch.bfloat16),
        np.ones(2, bool),
    ]
    strange = [
        None,
        [1],
        [[1, 2]],
        ["1", "2"],
        [1, None],
        torch.ones(2, dtype=torch.complex64),
        {},
        "ab",
    ]
    found = made(RecordSpec("numbers", (2,)), *values, *strange)
    assert found.x.dtype == np.float32
    assert found.x[:5].tolist() == [[1, 2], [0.5, np.inf], [1, 2], [1, 1], [1, 1]]
    assert (found.x[5:] == 0).all()
    assert found.labels.tolist() == [0] * 5 + [-1] * 8


def test_a_missing_text_is_empty_and_keeps_its_label() -> None:
    found = made(RecordSpec("text"), "a", None, "half \ud83d", 10**5000, 7)
    assert found.x.tolist() == ["a", "", "half ?", "", "7"]
    assert found.labels.tolist() == [0] * 5


def test_labels_and_persons_may_be_tensors() -> None:
    items = [
        ("a", torch.tensor(1), np.int64(7)),
        ("b", np.array([0]), torch.tensor(7)),
        ("c", np.arange(2), None),
    ]
    found = read_one_by_one(items, 3, RecordSpec("text"), CLASSES)
    assert found.labels.tolist() == [1, 0, -1]
    assert found.persons.tolist() == [0, 0, 1]

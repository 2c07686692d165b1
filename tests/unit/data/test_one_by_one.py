"""One value after the other, made into what all records are."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedaux.data.labels import DeclaredClasses
from fedaux.data.one_by_one import attempt, read_one_by_one
from fedaux.data.record_spec import RecordSpec
from fedaux.data.records import Records

CLASSES = DeclaredClasses.of(("flu", "cold"))
GREY = np.arange(25, dtype=np.uint8).reshape(5, 5) * 10


def made(spec: RecordSpec, *values: Any) -> Records:
    return read_one_by_one(((value, 0, None) for value in values), len(values), spec, CLASSES)


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
    found = made(RecordSpec("image", (2, 2, 1)), torch.tensor([[-5.0, 0.2], [0.4, 7.0]]))
    assert found.x[0, ..., 0].tolist() == [[0, 51], [102, 255]]


def test_encoded_images_are_opened_here() -> None:
    stream = io.BytesIO()
    Image.fromarray(GREY).save(stream, "PNG")
    found = made(RecordSpec("image", (5, 5, 1)), {"bytes": stream.getvalue(), "path": None})
    assert np.array_equal(found.x[0, ..., 0], GREY)


def test_numbers_of_one_shape() -> None:
    values = [[1, 2], (0.5, 1e300), torch.tensor([1, 2]), torch.ones(2, dtype=torch.bfloat16), np.ones(2, bool)]
    strange = [None, [1], [[1, 2]], ["1", "2"], [1, None], torch.ones(2, dtype=torch.complex64), {}, "ab"]
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
    items = [("a", torch.tensor(1), np.int64(7)), ("b", np.array([0]), torch.tensor(7)), ("c", np.arange(2), None)]
    found = read_one_by_one(items, 3, RecordSpec("text"), CLASSES)
    assert found.labels.tolist() == [1, 0, -1]
    assert found.persons.tolist() == [0, 0, 1]


def test_only_errors_are_caught() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    assert attempt(int, "x") is None
    with pytest.raises(KeyboardInterrupt):
        attempt(stop)

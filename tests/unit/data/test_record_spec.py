"""What a model takes, in words and as a check of what it is given."""

import numpy as np
import pytest
import torch

from fedaux.core.errors import Exit
from fedaux.data.record_spec import RecordsError, RecordSpec
from fedaux.data.records import Records, to_tensor

IMAGES = np.zeros((2, 8, 8, 1), np.uint8)


@pytest.mark.parametrize(
    ("record_spec", "records", "message"),
    [
        (
            RecordSpec("image", (8, 8, 1)),
            IMAGES[0],
            r"not of shape \(8, 8, 1\); a single record x goes in as x\[None\]",
        ),
        (
            RecordSpec("image", (8, 8, 1)),
            IMAGES[..., 0],
            r"uint8 images of shape \(N, 8, 8, 1\), not of shape \(2, 8, 8\)",
        ),
        (RecordSpec("image", (8, 8, 1)), IMAGES / 255, "not float64: give pixels from 0 to 255, it scales them itself"),
        (RecordSpec("image", (8, 8, 1)), 3, r"not of shape \(\)"),
        (RecordSpec("numbers", (2,)), [[1, 2], [3]], "not all of one shape"),
        (RecordSpec("numbers", (2,)), [[1, 2], [3, float("nan")]], "record 1 has a number that is missing"),
        (
            RecordSpec("numbers", (2,)),
            [[1e300, 2]],
            "record 0 has a number that is missing, infinite or beyond float32",
        ),
        (RecordSpec("numbers", (2,)), [["a", "b"]], "takes numbers, not <U1"),
        (RecordSpec("text"), "one text", r"a single text goes in as \[text\]"),
        (RecordSpec("text"), ["a", 3], "record 1 is a int"),
    ],
)
def test_records_that_do_not_fit(record_spec: RecordSpec, records: object, message: str) -> None:
    with pytest.raises(RecordsError, match=message) as caught:
        record_spec.validate(records)
    assert caught.value.code == Exit.DATA


def test_records_that_fit() -> None:
    assert RecordSpec("numbers", (2,)).validate([[1, 2], [3, 4]]).dtype == np.float32
    assert RecordSpec("text").validate(["a", "ü"]).tolist() == ["a", "ü"]
    assert RecordSpec("image", (8, 8, 1)).validate(torch.from_numpy(IMAGES)).shape == (2, 8, 8, 1)


@pytest.mark.parametrize(
    ("x", "spec"),
    [
        (IMAGES, RecordSpec("image", (8, 8, 1))),
        (np.zeros((2, 5), np.float32), RecordSpec("numbers", (5,))),
        (np.array(["a", "b"], dtype=object), RecordSpec("text")),
    ],
)
def test_the_spec_of_records_is_read_off_them(x: np.ndarray, spec: RecordSpec) -> None:
    assert RecordSpec.of(Records(x)) == spec
    assert spec.validate(x.tolist() if spec.kind == "text" else x).shape == x.shape
    card = spec.to_card()
    assert RecordSpec(card["kind"], tuple(card["shape"])) == spec
    assert spec.input_shape == (Records(x).shape if spec.kind != "text" else ())


def test_the_scaling_of_a_card_is_what_the_network_sees() -> None:
    pixels = np.arange(0, 256, dtype=np.uint8).reshape(1, 16, 16, 1)
    formula = RecordSpec("image", (16, 16, 1)).to_card()["scaling"].partition(",")[0]
    seen = eval(formula, {"x": pixels.astype(np.float64)})  # the very words of the card
    assert np.allclose(to_tensor(pixels).numpy(), seen.transpose(0, 3, 1, 2), atol=1e-6)


@pytest.mark.parametrize(("kind", "shape"), [("sound", ()), ("image", (8, 8)), ("numbers", (0,)), ("numbers", (2.0,))])
def test_specs_that_cannot_be(kind: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="there are no records of kind"):
        RecordSpec(kind, shape)

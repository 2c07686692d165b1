"""What a model takes, in words and as a check of what it is given."""

import numpy as np
import pytest
import torch

from fedaux.core.errors import Exit
from fedaux.data.form import Form, RecordsError
from fedaux.data.records import Records, to_tensor

IMAGES = np.zeros((2, 8, 8, 1), np.uint8)


@pytest.mark.parametrize(
    ("form", "records", "message"),
    [
        (Form("image", (8, 8, 1)), IMAGES[0], r"not of shape \(8, 8, 1\); a single record x goes in as x\[None\]"),
        (Form("image", (8, 8, 1)), IMAGES[..., 0], r"uint8 images of shape \(N, 8, 8, 1\), not of shape \(2, 8, 8\)"),
        (Form("image", (8, 8, 1)), IMAGES / 255, "not float64: give pixels from 0 to 255, it scales them itself"),
        (Form("image", (8, 8, 1)), 3, r"not of shape \(\)"),
        (Form("numbers", (2,)), [[1, 2], [3]], "not all of one shape"),
        (Form("numbers", (2,)), [[1, 2], [3, float("nan")]], "record 1 has a number that is missing"),
        (Form("numbers", (2,)), [[1e300, 2]], "record 0 has a number that is missing, infinite or beyond float32"),
        (Form("numbers", (2,)), [["a", "b"]], "takes numbers, not <U1"),
        (Form("text"), "one text", r"a single text goes in as \[text\]"),
        (Form("text"), ["a", 3], "record 1 is a int"),
    ],
)
def test_records_that_do_not_fit(form: Form, records: object, message: str) -> None:
    with pytest.raises(RecordsError, match=message) as caught:
        form.rows(records)
    assert caught.value.code == Exit.DATA


def test_records_that_fit() -> None:
    assert Form("numbers", (2,)).rows([[1, 2], [3, 4]]).dtype == np.float32
    assert Form("text").rows(["a", "ü"]).tolist() == ["a", "ü"]
    assert Form("image", (8, 8, 1)).rows(torch.from_numpy(IMAGES)).shape == (2, 8, 8, 1)


@pytest.mark.parametrize(
    ("x", "form"),
    [
        (IMAGES, Form("image", (8, 8, 1))),
        (np.zeros((2, 5), np.float32), Form("numbers", (5,))),
        (np.array(["a", "b"], dtype=object), Form("text")),
    ],
)
def test_the_form_of_records_is_read_off_them(x: np.ndarray, form: Form) -> None:
    assert Form.of(Records(x)) == form
    assert form.rows(x.tolist() if form.kind == "text" else x).shape == x.shape
    facts = form.facts()
    assert Form(facts["kind"], tuple(facts["shape"])) == form
    assert form.seen == (Records(x).shape if form.kind != "text" else ())


def test_the_scaling_of_a_card_is_what_the_network_sees() -> None:
    pixels = np.arange(0, 256, dtype=np.uint8).reshape(1, 16, 16, 1)
    formula = Form("image", (16, 16, 1)).facts()["scaling"].partition(",")[0]
    seen = eval(formula, {"x": pixels.astype(np.float64)})  # the very words of the card
    assert np.allclose(to_tensor(pixels).numpy(), seen.transpose(0, 3, 1, 2), atol=1e-6)


@pytest.mark.parametrize(("kind", "shape"), [("sound", ()), ("image", (8, 8)), ("numbers", (0,)), ("numbers", (2.0,))])
def test_forms_that_cannot_be(kind: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="there are no records of kind"):
        Form(kind, shape)

"""Views of records that share one array; what a model takes, in words and as a check of
what it is given.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedaux.core.errors import Exit
from fedaux.data.records import Records, RecordsError, RecordSpec, to_tensor


@pytest.fixture
def mapped(tmp_path):
    np.save(
        tmp_path / "x.npy",
        np.random.default_rng(0).integers(0, 256, (50, 4, 6, 3), dtype=np.uint8),
    )
    return Records(np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(50))


def test_taking_twice_is_taking_the_composition(mapped):
    once, twice = np.array([40, 30, 20, 10]), np.array([3, 1])
    view = mapped.take(once).take(twice)
    assert view.labels.tolist() == [10, 30]
    assert np.array_equal(view.gather(), np.asarray(mapped.x)[[10, 30]])
    assert len(view) == 2


def test_a_view_shares_the_map_and_gathering_copies_only_its_rows(mapped):
    view = mapped.take(np.array([5, 2]))
    assert view.x is mapped.x
    assert isinstance(view.x, np.memmap)
    rows = view.gather(slice(0, 1))
    assert not isinstance(rows, np.memmap)
    assert rows.shape == (1, 4, 6, 3)
    assert np.array_equal(rows[0], mapped.x[5])


@pytest.mark.parametrize("positions", [slice(0, 2), np.array([0, 1])])
def test_what_is_gathered_may_be_written_to(positions):
    records = Records(np.zeros((3, 2), dtype=np.float32))
    records.tensor(positions).add_(1)
    assert (records.x == 0).all()


def test_blocks_cover_every_record_once(mapped):
    view = mapped.take(np.arange(49, -1, -1))
    blocks = list(view.blocks(16))
    assert [view.labels[block].size for block in blocks] == [16, 16, 16, 2]
    assert np.concatenate([view.labels[block] for block in blocks]).tolist() == list(
        range(49, -1, -1)
    )


def test_images_become_channels_first_by_fixed_constants(mapped):
    x = to_tensor(mapped.gather(slice(0, 2)))
    assert x.shape == (2, 3, 4, 6)
    assert mapped.shape == (3, 4, 6)
    assert x.dtype == torch.float32
    assert x[1, 2, 3, 5].item() == pytest.approx(
        (float(mapped.x[1, 3, 5, 2]) - 127.5) / 63.75
    )


def test_labels_must_be_there_to_be_asked_for(mapped):
    with pytest.raises(ValueError, match="no labels"):
        _ = mapped.unlabelled().labels


def test_a_batch_is_a_copy_unless_a_view_is_asked_for():
    numbers = Records(np.zeros((3, 2), dtype=np.float32))
    numbers.batch(slice(0, 2)).add_(1)
    assert (numbers.x == 0).all()
    numbers.batch(slice(0, 2), view=True).add_(1)
    assert numbers.x.sum() == 4
    part = numbers.take(np.array([2]))
    part.batch(view=True).add_(1)  # picked rows are a copy anyway
    assert numbers.x[2].sum() == 0


def test_images_and_mapped_rows_are_never_handed_out(mapped):
    images = Records(np.array(mapped.x))
    assert torch.equal(images.batch(slice(0, 5)), mapped.batch(slice(0, 5)))
    images.batch(slice(0, 5), view=True).add_(1)
    assert np.array_equal(images.x, mapped.x)
    mapped.batch(slice(0, 5), view=True).add_(1)  # a read-only map would fail


IMAGES = np.zeros((2, 8, 8, 1), np.uint8)


@pytest.mark.parametrize(
    ("record_spec", "records", "message"),
    [
        (
            RecordSpec("image", (8, 8, 1)),
            IMAGES[0],
            r"not of shape \(8, 8, 1\). Give records of this shape, and a single record x as x\[None\]",
        ),
        (
            RecordSpec("image", (8, 8, 1)),
            IMAGES[..., 0],
            r"uint8 images of shape \(N, 8, 8, 1\), not of shape \(2, 8, 8\)",
        ),
        (
            RecordSpec("image", (8, 8, 1)),
            IMAGES / 255,
            "not float64. Give pixels from 0 to 255, which it scales itself",
        ),
        (RecordSpec("image", (8, 8, 1)), 3, r"not of shape \(\)"),
        (RecordSpec("numbers", (2,)), [[1, 2], [3]], "not all of one shape"),
        (
            RecordSpec("numbers", (2,)),
            [[1, 2], [3, float("nan")]],
            "record 1 has a number that is missing",
        ),
        (
            RecordSpec("numbers", (2,)),
            [[1e300, 2]],
            "record 0 has a number that is missing, infinite or beyond float32",
        ),
        (RecordSpec("numbers", (2,)), [["a", "b"]], "takes numbers, not <U1"),
        (RecordSpec("text"), "one text", r"Give a single text as \[text\]"),
        (RecordSpec("text"), ["a", 3], "record 1 is a int"),
    ],
)
def test_records_that_do_not_fit(
    record_spec: RecordSpec, records: object, message: str
) -> None:
    with pytest.raises(RecordsError, match=message) as caught:
        record_spec.validate(records)
    assert caught.value.code == Exit.DATA


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


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("sound", ()), ("image", (8, 8)), ("numbers", (0,)), ("numbers", (2.0,))],
)
def test_specs_that_cannot_be(kind: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="there are no records of kind"):
        RecordSpec(kind, shape)

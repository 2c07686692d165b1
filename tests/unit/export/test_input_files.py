"""Files to be classified, read in blocks."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux.data.federated import open_data
from fedaux.data.records import RecordsError, RecordSpec
from fedaux.export.input_files import InputReader
from helpers.tiny import TINY_CONFIG


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return open_data(TINY_CONFIG).test.gather(slice(0, 30))


def test_more_records_than_one_block(images: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.tile(images, (40, 1, 1, 1)))
    blocks = list(
        InputReader(RecordSpec("image", (8, 8, 1))).blocks([tmp_path / "x.npy"])
    )
    assert [len(names) for names, _ in blocks] == [512, 512, 176]
    assert blocks[1][0][0].endswith("x.npy[512]")
    assert np.array_equal(np.concatenate([x for _, x in blocks])[600:630], images)


@pytest.mark.parametrize("name", ["x.npy", "grey.npy", "both.npz", "only.npz"])
def test_arrays_by_any_name_are_the_same_records(
    name: str, images: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "grey.npy", images[..., 0])
    np.savez(tmp_path / "both.npz", x=images, y=np.zeros(len(images)))
    np.savez(tmp_path / "only.npz", images)
    ((names, rows),) = InputReader(RecordSpec("image", (8, 8, 1))).blocks(
        [tmp_path / name]
    )
    assert np.array_equal(rows, images)
    assert names[7] == f"{tmp_path / name}[7]"


def test_texts_of_every_format(tmp_path: Path) -> None:
    texts = ["the rocket, the moon", "oil", "ünïcode"]
    (tmp_path / "t.csv").write_text("body\n" + "".join(f'"{text}"\n' for text in texts))
    (tmp_path / "t.jsonl").write_text(
        "".join(json.dumps({"body": text}) + "\n" for text in texts)
    )
    (tmp_path / "t.txt").write_text("\n\n".join(texts))  # empty lines are no records
    reader = InputReader(RecordSpec("text"), column="body")
    for name in ("t.csv", "t.jsonl", "t.txt"):
        ((names, rows),) = reader.blocks([tmp_path / name])
        assert list(rows) == texts
        assert names[2] == f"{tmp_path / name}[2]"


def test_nothing_is_read_if_one_of_the_files_cannot_be(
    images: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", images)
    blocks = InputReader(RecordSpec("image", (8, 8, 1))).blocks(
        [tmp_path / "x.npy", tmp_path / "gone.npy"]
    )
    with pytest.raises(RecordsError, match=r"there is no file or folder .*gone\.npy"):
        next(blocks)


def test_a_large_image_is_cropped_to_its_middle_and_shrunk(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    with pytest.raises(
        RecordsError, match=r"has 20×16 pixels, and this model takes 8×8\. Use --resize"
    ):
        list(
            InputReader(RecordSpec("image", (8, 8, 1))).blocks([tmp_path / "large.png"])
        )
    ((_, rows),) = InputReader(RecordSpec("image", (8, 8, 1)), resize=True).blocks(
        [tmp_path / "large.png"]
    )
    grey = np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.float64)[:, 2:18]
    assert (
        np.abs(rows[0, ..., 0] - grey.reshape(8, 2, 8, 2).mean(axis=(1, 3))).max() <= 1
    )

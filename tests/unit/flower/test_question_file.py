"""What clients are asked with is kept to the bit."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.data.records import Records
from fedaux.flower.question_file import default_file, load_question, save_question
from helpers.drop_in_app import net


def test_both_parts_come_back_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    h0 = {"parameters": rng.normal(size=5).astype(np.float32), "counters": np.array([3])}
    public = {"mean": rng.normal(size=3).astype(np.float32), "basis": np.asfortranarray(rng.normal(size=(3, 2)))}
    save_question(tmp_path / "folder" / "question.safetensors", h0, public)
    for found, saved in zip(load_question(tmp_path / "folder" / "question.safetensors"), (h0, public), strict=True):
        assert found.keys() == saved.keys()
        for name, array in saved.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert np.array_equal(found[name], array)


def test_the_default_file_depends_on_everything_but_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = Records(np.eye(6, dtype=np.float32))

    def name(seed: int = 0, dim: int = 8, records: Records = rows, classes: int = 3) -> Path:
        return default_file(net(seed), records, {"embedding_dim": dim}, classes, 0)

    assert name() == name(seed=1)
    assert name().parent == tmp_path / ".fedaux"
    others = {name(dim=4), name(records=Records(2 * rows.x)), name(classes=4)}
    assert len(others | {name()}) == 4

"""What clients are asked with is kept to the bit."""

from pathlib import Path

import numpy as np

from fedaux.flower.keep import load_question, save_question


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

"""Features are computed once, and those of private records alone."""

import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.data.records import Records
from fedaux.models.inference import fingerprint, predict
from fedaux.privacy.module_validation import UnsupportedModuleError
from fedaux.scoring.feature_cache import FeatureCache


def numbers(count: int = 1100) -> Records:
    return Records(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))


def test_features_are_computed_once_and_mapped(tmp_path: Path) -> None:
    rows, module, asked = numbers(), nn.Linear(4, 3), []

    def extractor() -> nn.Module:
        asked.append(1)
        return module

    first = FeatureCache(tmp_path).features("h0", rows, extractor)
    again = FeatureCache(tmp_path).features("h0", rows.take(np.arange(1100)), extractor)  # the same rows by another way
    assert asked == [1]
    assert isinstance(again, np.memmap)
    assert np.array_equal(first, again)
    assert np.array_equal(again, predict(module, rows))
    FeatureCache(tmp_path).features("other", rows, extractor)
    FeatureCache(tmp_path).features("h0", rows.take(np.arange(7)), extractor)
    assert len(asked) == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_private_features_are_for_their_owner(tmp_path: Path) -> None:
    for private, mode in ((True, 0o600), (False, 0o644)):
        folder = tmp_path / str(private)
        FeatureCache(folder, private).features("h0", numbers(5), lambda: nn.Linear(4, 3))
        (file,) = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == mode


def test_private_features_are_computed_alone_and_by_networks_that_allow_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows, module = numbers(40), nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 5))
    found = FeatureCache(tmp_path, private=True).features("h0", rows, lambda: module)
    for position in (0, 17, 39):
        (own,) = FeatureCache(tmp_path, private=True).features("h0", rows.take(np.array([position])), lambda: module)
        assert np.array_equal(own, found[position])
    assert np.allclose(found, predict(module, rows), atol=1e-6)
    mixing = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(UnsupportedModuleError, match="0: BatchNorm1d has no running statistics"):
        FeatureCache(tmp_path, private=True).features("other", rows, lambda: mixing)


def test_private_features_of_an_older_version_are_not_found(tmp_path: Path) -> None:
    rows, module = numbers(5), nn.Linear(4, 3)
    np.save(tmp_path / f"features-{fingerprint(rows, 'h0')}.npy", np.zeros((5, 3), np.float32))  # as once computed
    assert FeatureCache(tmp_path, private=True).features("h0", rows, lambda: module).any()
    assert not FeatureCache(tmp_path).features("h0", rows, lambda: module).any()


def test_work_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) < 512:
                raise OSError("No space left on device")
            return x

    with pytest.raises(OSError, match="No space left"):
        FeatureCache(tmp_path).features("h0", numbers(600), Fails)
    assert list(tmp_path.iterdir()) == []

"""Features are computed once, those of private records alone, and h0's are those of its
own weights.
"""

import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.client.features import PrivateFeatureCache
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.fingerprints import fingerprint_records
from fedaux.data.records import Records
from fedaux.models import build, flatten_state
from fedaux.models.inference import predict
from fedaux.privacy.module_validation import UnsupportedModuleError
from fedaux.scoring.features import H0, FeatureCache, extractor_hash


def numbers(count: int = 1100) -> Records:
    return Records(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))


def test_features_are_computed_once_and_mapped(tmp_path: Path) -> None:
    rows, module, asked = numbers(), nn.Linear(4, 3), []

    def extractor() -> nn.Module:
        asked.append(1)
        return module

    first = FeatureCache(tmp_path).features("h0", rows, extractor)
    # the same rows by another way
    again = FeatureCache(tmp_path).features("h0", rows.take(np.arange(1100)), extractor)
    assert asked == [1]
    assert isinstance(again, np.memmap)
    assert np.array_equal(first, again)
    assert np.array_equal(again, predict(module, rows))
    FeatureCache(tmp_path).features("other", rows, extractor)
    FeatureCache(tmp_path).features("h0", rows.take(np.arange(7)), extractor)
    assert len(asked) == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_private_features_are_for_their_owner(tmp_path: Path) -> None:
    for cache, mode in ((PrivateFeatureCache, 0o600), (FeatureCache, 0o644)):
        folder = tmp_path / cache.__name__
        cache(folder).features("h0", numbers(5), lambda: nn.Linear(4, 3))
        (file,) = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == mode


def test_private_features_are_computed_alone_and_by_networks_that_allow_it(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    rows, module = (
        numbers(40),
        nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 5)),
    )
    found = PrivateFeatureCache(tmp_path).features("h0", rows, lambda: module)
    for position in (0, 17, 39):
        (own,) = PrivateFeatureCache(tmp_path).features(
            "h0", rows.take(np.array([position])), lambda: module
        )
        assert np.array_equal(own, found[position])
    assert np.allclose(found, predict(module, rows), atol=1e-6)
    mixing = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(
        UnsupportedModuleError, match="0: BatchNorm1d has no running statistics"
    ):
        PrivateFeatureCache(tmp_path).features("other", rows, lambda: mixing)


def test_private_features_of_an_older_version_are_not_found(tmp_path: Path) -> None:
    rows, module = numbers(5), nn.Linear(4, 3)
    # as once computed
    np.save(
        tmp_path / f"features-{fingerprint_records(rows, 'h0')}.npy",
        np.zeros((5, 3), np.float32),
    )
    assert PrivateFeatureCache(tmp_path).features("h0", rows, lambda: module).any()
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


SPEC = PrototypeSpec.of("mlp", hidden=8, features=6)


def labelled(count: int = 20) -> Records:
    return Records(
        np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32),
        np.arange(count),
    )


def test_the_hash_knows_every_bit_and_the_network() -> None:
    arrays = flatten_state(build(SPEC, (4,), 3, seed=0).features)
    moved = {name: array.copy() for name, array in arrays.items()}
    moved["parameters"][0] = np.nextafter(moved["parameters"][0], np.float32(np.inf))
    hashes = {
        extractor_hash(arrays, "a"),
        extractor_hash(moved, "a"),
        extractor_hash(arrays, "b"),
    }
    assert len(hashes) == 3
    assert (
        extractor_hash({name: array.copy() for name, array in arrays.items()}, "a")
        in hashes
    )


@pytest.mark.parametrize("cached", [True, False])
def test_features_are_those_of_its_own_weights(cached: bool, tmp_path: Path) -> None:
    own, shared = (build(SPEC, (4,), 3, seed=seed).features for seed in (1, 2))
    h0 = H0(
        SPEC, shared, flatten_state(own), FeatureCache(tmp_path) if cached else None
    )
    found = h0.features(labelled())
    assert np.array_equal(found.gather(), predict(own, labelled()))
    assert found.labels.tolist() == list(range(20))
    assert len(list(tmp_path.iterdir())) == cached
    assert h0.features(labelled().unlabelled()).y is None


def test_records_that_were_seen_are_not_computed_again(tmp_path: Path) -> None:
    network, records = build(SPEC, (4,), 3, seed=1).features, labelled()
    h0 = H0(SPEC, network, flatten_state(network))
    first = h0.features(records)
    for parameter in network.parameters():
        parameter.data.zero_()
    assert h0.features(records) is first
    # its weights are loaded again
    assert np.allclose(h0.features(labelled(5)).gather(), first.gather()[:5], atol=1e-5)

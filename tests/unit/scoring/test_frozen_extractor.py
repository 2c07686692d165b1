"""h0: known by its hash, and its features are those of its own weights, whatever the shared network holds now."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import build, flatten_state
from fedaux.models.inference import predict
from fedaux.scoring.feature_cache import FeatureCache
from fedaux.scoring.frozen_extractor import H0, extractor_hash

SPEC = PrototypeSpec.of("mlp", hidden=8, features=6)


def rows(count: int = 20) -> Records:
    return Records(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32), np.arange(count))


def test_the_hash_knows_every_bit_and_the_network() -> None:
    arrays = flatten_state(build(SPEC, (4,), 3, seed=0).features)
    moved = {name: array.copy() for name, array in arrays.items()}
    moved["parameters"][0] = np.nextafter(moved["parameters"][0], np.float32(np.inf))
    hashes = {extractor_hash(arrays, "a"), extractor_hash(moved, "a"), extractor_hash(arrays, "b")}
    assert len(hashes) == 3
    assert extractor_hash({name: array.copy() for name, array in arrays.items()}, "a") in hashes


@pytest.mark.parametrize("cached", [True, False])
def test_features_are_those_of_its_own_weights(cached: bool, tmp_path: Path) -> None:
    own, shared = (build(SPEC, (4,), 3, seed=seed).features for seed in (1, 2))
    h0 = H0(SPEC, shared, flatten_state(own), FeatureCache(tmp_path) if cached else None)
    found = h0.features(rows())
    assert np.array_equal(found.gather(), predict(own, rows()))
    assert found.labels.tolist() == list(range(20))
    assert len(list(tmp_path.iterdir())) == cached
    assert h0.features(rows().unlabelled()).y is None


def test_records_that_were_seen_are_not_computed_again(tmp_path: Path) -> None:
    network, records = build(SPEC, (4,), 3, seed=1).features, rows()
    h0 = H0(SPEC, network, flatten_state(network))
    first = h0.features(records)
    for parameter in network.parameters():
        parameter.data.zero_()
    assert h0.features(records) is first
    assert np.allclose(h0.features(rows(5)).gather(), first.gather()[:5], atol=1e-5)  # its weights are loaded again

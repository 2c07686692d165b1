"""Models that travel in half precision: half the bytes, and the same learning to
rounding.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import run
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import FederationConfig
from fedaux.models import flatten_state, load_state, to_half
from fedaux.server.server import make_server

SMALL = replace(
    DEMO,
    rounds=2,
    prototypes=(PrototypeSpec("mlp"),),
    pretrain=replace(DEMO.pretrain, epochs=1),
    distill=replace(DEMO.distill, epochs=1),
    privacy=replace(DEMO.privacy, unsafe_seed=1),
)
HALF = replace(SMALL, federation=FederationConfig(precision="float16"))


def test_a_model_read_from_half_precision_is_the_rounded_one(tmp_path: Path) -> None:
    server = make_server(SMALL, cache=tmp_path)
    (model,) = server.networks.whole.values()
    weights = flatten_state(model)
    load_state(model, to_half(weights))
    assert np.array_equal(
        flatten_state(model)["parameters"],
        weights["parameters"].astype(np.float16).astype(np.float32),
    )


def test_it_learns_as_well(tmp_path: Path) -> None:
    whole, half = (
        run(c, tmp_path / str(i), cache=tmp_path / "cache")
        for i, c in enumerate((SMALL, HALF))
    )
    assert half.accuracy == pytest.approx(whole.accuracy, abs=0.03)
    (label,) = whole.state.weights
    assert not np.array_equal(
        whole.state.weights[label]["parameters"],
        half.state.weights[label]["parameters"],
    )

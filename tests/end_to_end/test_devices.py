"""A run on another device than the processor's is the same run: no tensor stays behind,
and numpy sees none of it.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import Config, run
from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from helpers.other_device import other_device

CNN = PrototypeSpec.of("cnn", width=8, features=16, norm="batch")
CONFIG = Config(
    rounds=2,
    prototypes=(CNN,),
    data=DataConfig(clients=3, alpha=0.3),
    aux=AuxConfig(fraction=0.9, limit=200),  # few private records
    pretrain=PretrainConfig(epochs=1, batch_size=64),
    local=LocalConfig(lr=5e-3),
    distill=DistillConfig(epochs=1, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=8, unsafe_seed=3),
)
SETTINGS = {
    "fedaux": CONFIG,
    "two networks": replace(
        CONFIG, prototypes=(CNN, PrototypeSpec.of("resnet8", width=4))
    ),
    "heads": replace(CONFIG, head_only=True),
    "private heads": replace(
        CONFIG,
        head_only=True,
        privacy=replace(CONFIG.privacy, epsilon_total=3.0, private_training=True),
    ),
    "fedprox": replace(CONFIG, method="fedprox+p"),
    "fedbe": replace(CONFIG, method="fedbe+p"),
    "scaffold": replace(
        CONFIG,
        method="scaffold",
        local=replace(CONFIG.local, optimizer="sgd", momentum=0.0),
    ),
    "fedadam": replace(CONFIG, method="fedadam"),
}


LONG = ("private heads", "two networks", "fedprox", "fedadam", "fedbe")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in SETTINGS
    ],
)
def test_a_run_elsewhere_is_the_same_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = run(
        replace(SETTINGS[name], device="cpu"),
        tmp_path / "here",
        cache=tmp_path / "cache-here",
    )
    with other_device(monkeypatch):
        there = run(SETTINGS[name], tmp_path / "there", cache=tmp_path / "cache-there")
    assert not any(
        result.failures for each in (here, there) for result in each.state.history
    )
    for label, arrays in here.state.weights.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(
                there.state.weights[label][key], array, rtol=0, atol=1e-5
            )
    assert there.curve == here.curve


@pytest.mark.parametrize("precision", ["bfloat16", "auto"])
def test_a_run_in_another_precision_learns_about_the_same(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "precision"))
    config = replace(CONFIG, aux=AuxConfig(limit=200))
    exact, other = (
        run(
            replace(config, precision=each),
            tmp_path / each,
            cache=tmp_path / f"cache-{each}",
        )
        for each in ("float32", precision)
    )
    assert other.accuracy == pytest.approx(exact.accuracy, abs=0.1)
    if precision == "auto":
        (chosen,) = json.loads(
            (tmp_path / "precision" / "precision.json").read_text()
        ).values()
        assert chosen in ("float32", "bfloat16")
    else:
        assert other.curve != exact.curve


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="this machine has no CUDA device"
)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_on_a_gpu_is_the_same_run(name: str, tmp_path: Path) -> None:
    """`pytest -m gpu`. TF32 is off by default in matrix products, and must be for
    convolutions to agree to 10⁻⁵.
    """
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        here, there = (
            run(
                replace(SETTINGS[name], device=device),
                tmp_path / device,
                cache=tmp_path / f"cache-{device}",
            )
            for device in ("cpu", "cuda")
        )
    for label, arrays in here.state.weights.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(
                there.state.weights[label][key], array, rtol=0, atol=1e-5
            )

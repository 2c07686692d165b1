"""The paper's three networks side by side on real CIFAR-10, with real Tiny-ImageNet
images as auxiliary data.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import Config, run
from helpers.shared_data import load, needs

FILES = (
    "cifar10_train.webp.npz",
    "cifar10_test.webp.npz",
    "tinyimagenet32_24k.webp.npz",
)


@pytest.mark.slow
@needs(*FILES)
def test_three_architectures_learn_from_one_ensemble(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    (x, y), (x_test, y_test), (public, _) = (load(name) for name in FILES)
    np.savez(
        tmp_path / "private.npz",
        x=x[:1500],
        y=y[:1500],
        x_test=x_test[:1000],
        y_test=y_test[:1000],
    )
    np.save(tmp_path / "public.npy", public[::30])
    config = Config.from_dict(
        {
            "method": "fedaux",
            "rounds": 2,
            "prototypes": ["resnet8", "mobilenetv2", "shufflenet"],
            "data": {
                "source": "npz",
                "path": str(tmp_path / "private.npz"),
                "clients": 6,
                "alpha": 1.0,
            },
            "aux": {"source": "npy", "path": str(tmp_path / "public.npy")},
            "pretrain": {"epochs": 2, "batch_size": 128},
            "local": {"epochs": 1},
            "distill": {"epochs": 1, "lr": 1e-3},
            "privacy": {"epsilon": 1.0},
        }
    )
    result = run(config, tmp_path / "run", cache=tmp_path)
    assert set(result.state.history[-1].accuracy) == {
        "resnet8",
        "mobilenetv2",
        "shufflenet",
    }
    print([(each.accuracy, each.effective_teachers) for each in result.state.history])
    assert not any(each.failures for each in result.state.history)
    first, last = (each.distill_loss for each in result.state.history)
    assert last < first
    assert all(
        accuracy > 0.1 for accuracy in result.state.history[-1].accuracy.values()
    )

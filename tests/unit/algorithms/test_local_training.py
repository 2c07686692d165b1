"""T1: local training learns, repeats exactly, and FedProx stays near its start."""

import numpy as np
import torch

from fedaux.algorithms.evaluation import evaluate
from fedaux.algorithms.local_training import train_local
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import Prototype, build, flatten_state


def blobs(size: int = 60) -> Records:
    rng = np.random.default_rng(0)
    y = np.arange(size) % 3
    return Records((rng.normal(size=(size, 4)) + 2 * np.eye(4)[y]).astype(np.float32), y.astype(np.int64))


def model(norm: str = "batch") -> Prototype:
    return build(PrototypeSpec.of("mlp", hidden=16, features=8, norm=norm), (4,), 3, seed=0)


def train(network: Prototype, records: Records, mu: float = 0.0, epochs: int = 5, lr: float = 1e-2) -> float:
    generator = torch.Generator().manual_seed(1)
    return train_local(network, records, epochs=epochs, lr=lr, batch_size=16, mu=mu, generator=generator)


def test_training_learns_and_repeats_exactly() -> None:
    first, again = model(), model()
    losses = [train(network, blobs()) for network in (first, again)]
    assert losses[0] == losses[1] < 0.7
    assert all(
        np.array_equal(a, b) for a, b in zip(flatten_state(first).values(), flatten_state(again).values(), strict=True)
    )
    assert evaluate(first, blobs())[0] > 50


def test_fedprox_stays_nearer_to_where_it_started() -> None:
    start = flatten_state(model())["parameters"]
    moved = []
    for mu in (0.0, 1.0, 100.0):
        network = model()
        train(network, blobs(), mu=mu)
        moved.append(float(np.linalg.norm(flatten_state(network)["parameters"] - start)))
    assert moved[0] > moved[1] > 3 * moved[2]

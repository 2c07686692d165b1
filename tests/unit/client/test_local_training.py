"""T1: local training learns, repeats exactly, and FedProx stays near its start."""

import numpy as np
import torch

from fedaux.client.local_training import Trained, gradient_term, train_local
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.partition import batches
from fedaux.data.records import Records
from fedaux.methods.hooks import Hooks
from fedaux.models import Prototype, build, flatten_state
from fedaux.models.optimizer import Optimizer
from fedaux.server.evaluation import evaluate

ADAM = Optimizer(lr=1e-2)


def blobs(size: int = 60) -> Records:
    rng = np.random.default_rng(0)
    y = np.arange(size) % 3
    return Records((rng.normal(size=(size, 4)) + 2 * np.eye(4)[y]).astype(np.float32), y.astype(np.int64))


def model(norm: str = "batch") -> Prototype:
    return build(PrototypeSpec.of("mlp", hidden=16, features=8, norm=norm), (4,), 3, seed=0)


def train(
    network: Prototype, records: Records, mu: float = 0.0, epochs: int = 5, optimizer: Optimizer = ADAM
) -> Trained:
    generator = torch.Generator().manual_seed(1)
    term = gradient_term(Hooks(), mu, flatten_state(network)["parameters"], {}, {})
    return train_local(
        network, records, epochs=epochs, batch_size=16, optimizer=optimizer, generator=generator, term=term
    )


def test_training_learns_and_repeats_exactly() -> None:
    first, again = model(), model()
    losses = [train(network, blobs()).loss for network in (first, again)]
    assert losses[0] == losses[1] < 0.7
    assert all(
        np.array_equal(a, b) for a, b in zip(flatten_state(first).values(), flatten_state(again).values(), strict=True)
    )
    assert evaluate(first, blobs())[0] > 50


def test_frozen_batch_norm_keeps_its_statistics_and_steps_as_in_eval_mode() -> None:
    records = blobs(16)
    trained, oracle = model(), model()
    for network in (trained, oracle):
        train(network, blobs())  # statistics that differ from those of a batch
    before = flatten_state(trained)["buffers"].copy()
    generator = torch.Generator().manual_seed(1)
    sgd = Optimizer("sgd", lr=0.1)
    common = {"epochs": 1, "batch_size": 16, "optimizer": sgd, "generator": generator}
    train_local(trained, records, **common, freeze_batch_norm=True)
    oracle.eval()
    loss = torch.nn.functional.cross_entropy(oracle(records.tensor()), torch.from_numpy(records.labels))
    loss.backward()
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter -= 0.1 * parameter.grad
    assert np.array_equal(flatten_state(trained)["buffers"], before)
    np.testing.assert_allclose(flatten_state(trained)["parameters"], flatten_state(oracle)["parameters"], atol=1e-6)
    train_local(trained, records, **common)
    assert not np.array_equal(flatten_state(trained)["buffers"], before)


def test_fedprox_stays_nearer_to_where_it_started() -> None:
    start = flatten_state(model())["parameters"]
    moved = []
    for mu in (0.0, 1.0, 100.0):
        network = model()
        train(network, blobs(), mu=mu)
        moved.append(float(np.linalg.norm(flatten_state(network)["parameters"] - start)))
    assert moved[0] > moved[1] > 3 * moved[2]


def test_fedprox_is_the_gradient_of_its_penalty() -> None:
    """Steps on cross-entropy + μ/2 ‖θ − θ_t‖², with autograd's gradient of the whole."""
    ours, naive, records, mu = model(), model(), blobs(), 0.3
    sgd = Optimizer("sgd", lr=0.1)
    assert train(ours, records, mu, epochs=2, optimizer=sgd).steps == 8
    start = [p.detach().clone() for p in naive.parameters()]
    labels, generator = torch.from_numpy(records.labels), torch.Generator().manual_seed(1)
    naive.train()
    for _ in range(2):
        for rows in batches(len(records), 16, generator):
            pull = sum((p - s).square().sum() for p, s in zip(naive.parameters(), start, strict=True))
            loss = torch.nn.functional.cross_entropy(naive(records.batch(rows)), labels[rows]) + mu / 2 * pull
            grads = torch.autograd.grad(loss, list(naive.parameters()))
            with torch.no_grad():
                for p, g in zip(naive.parameters(), grads, strict=True):
                    p -= 0.1 * g
    assert np.allclose(flatten_state(ours)["parameters"], flatten_state(naive)["parameters"], atol=1e-6)


def test_a_method_without_a_term_costs_nothing_per_step() -> None:
    assert gradient_term(Hooks(), 0.0, np.zeros(3, np.float32), {}, {}) is None

"""T1 and the passes that only look."""

import numpy as np
import pytest
import torch

from fedaux.algorithms.evaluation import confusion, evaluate
from fedaux.algorithms.hooks import Hooks
from fedaux.algorithms.local_training import Trained, gradient_term, train_local
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.batching import batches
from fedaux.data.records import Records
from fedaux.models import Prototype, build, dump
from fedaux.models.inference import predict_batches
from fedaux.models.optimizer import Optimizer

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
    term = gradient_term(Hooks(), mu, dump(network)["parameters"], {}, {})
    return train_local(
        network, records, epochs=epochs, batch_size=16, optimizer=optimizer, generator=generator, term=term
    )


@pytest.mark.parametrize(("size", "batch"), [(10, 3), (9, 4), (5, 5), (1, 4), (33, 32), (64, 32)])
def test_batches_cover_everything_once_and_none_has_one_row(size: int, batch: int) -> None:
    found = list(batches(size, batch, torch.Generator().manual_seed(0)))
    assert sorted(np.concatenate(found)) == list(range(size))
    assert size == 1 or min(map(len, found)) > 1


def test_training_learns_and_repeats_exactly() -> None:
    first, again = model(), model()
    losses = [train(network, blobs()).loss for network in (first, again)]
    assert losses[0] == losses[1] < 0.7
    assert all(np.array_equal(a, b) for a, b in zip(dump(first).values(), dump(again).values(), strict=True))
    assert evaluate(first, blobs())[0] > 50


def test_fedprox_stays_nearer_to_where_it_started() -> None:
    start = dump(model())["parameters"]
    moved = []
    for mu in (0.0, 1.0, 100.0):
        network = model()
        train(network, blobs(), mu=mu)
        moved.append(float(np.linalg.norm(dump(network)["parameters"] - start)))
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
    assert np.allclose(dump(ours)["parameters"], dump(naive)["parameters"], atol=1e-6)


def test_a_method_without_a_term_costs_nothing_per_step() -> None:
    assert gradient_term(Hooks(), 0.0, np.zeros(3, np.float32), {}, {}) is None


def test_looking_changes_nothing_and_rows_do_not_matter_to_each_other() -> None:
    network, records = model(), blobs(20)
    train(network, records, epochs=1)
    before = dump(network)
    together = np.concatenate([out for _, out in predict_batches(network, records, block=20)])
    alone = np.concatenate([out for _, out in predict_batches(network, records, block=1)])
    assert np.allclose(together, alone, atol=1e-5)
    assert all(np.array_equal(a, b) for a, b in zip(before.values(), dump(network).values(), strict=True))


def test_evaluate_counts_and_sums() -> None:
    network, records = model(), blobs(20)
    network.eval()
    with torch.no_grad():
        logits = network(records.tensor()).numpy().astype(np.float64)
    naive = -sum(np.log(np.exp(row)[y] / np.exp(row).sum()) for row, y in zip(logits, records.labels, strict=True))
    correct, loss = evaluate(network, records)
    assert correct == sum(int(np.argmax(row)) == y for row, y in zip(logits, records.labels, strict=True))
    assert loss == pytest.approx(naive, rel=1e-5)


def test_confusion_counts_true_by_predicted() -> None:
    class Told(torch.nn.Module):
        """Says what the first column says."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(x[:, 0].long(), 4).float()

    rng = np.random.default_rng(0)
    said, true = rng.integers(0, 4, (2, 1300))
    found = confusion(Told(), Records(said[:, None].astype(np.float32), true), 4)
    naive = np.zeros((4, 4), int)
    for row, column in zip(true, said, strict=True):
        naive[row, column] += 1
    assert (found == naive).all()

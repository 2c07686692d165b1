"""T1 and the passes that only look."""

import numpy as np
import pytest
import torch

from fedaux.algorithms.evaluation import confusion, evaluate
from fedaux.algorithms.local_training import train_local
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.batching import batches
from fedaux.data.records import Records
from fedaux.models import Prototype, build, flatten_state
from fedaux.models.inference import predict_batches


def blobs(size: int = 60) -> Records:
    rng = np.random.default_rng(0)
    y = np.arange(size) % 3
    return Records((rng.normal(size=(size, 4)) + 2 * np.eye(4)[y]).astype(np.float32), y.astype(np.int64))


def model(norm: str = "batch") -> Prototype:
    return build(PrototypeSpec.of("mlp", hidden=16, features=8, norm=norm), (4,), 3, seed=0)


def train(network: Prototype, records: Records, mu: float = 0.0, epochs: int = 5, lr: float = 1e-2) -> float:
    generator = torch.Generator().manual_seed(1)
    return train_local(network, records, epochs=epochs, lr=lr, batch_size=16, mu=mu, generator=generator)


@pytest.mark.parametrize(("size", "batch"), [(10, 3), (9, 4), (5, 5), (1, 4), (33, 32), (64, 32)])
def test_batches_cover_everything_once_and_none_has_one_row(size: int, batch: int) -> None:
    found = list(batches(size, batch, torch.Generator().manual_seed(0)))
    assert sorted(np.concatenate(found)) == list(range(size))
    assert size == 1 or min(map(len, found)) > 1


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


def test_looking_changes_nothing_and_rows_do_not_matter_to_each_other() -> None:
    network, records = model(), blobs(20)
    train(network, records, epochs=1)
    before = flatten_state(network)
    together = np.concatenate([out for _, out in predict_batches(network, records, block=20)])
    alone = np.concatenate([out for _, out in predict_batches(network, records, block=1)])
    assert np.allclose(together, alone, atol=1e-5)
    assert all(np.array_equal(a, b) for a, b in zip(before.values(), flatten_state(network).values(), strict=True))


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

"""Attacks on the handler that `fedaux.flower.answer` adds to a user's own Flower app."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.audit.attack_result import AttackResult, AttackSkipped, AuditConfig, distinguish
from fedaux.audit.site import Vector, compare_replies, refused
from fedaux.core.messages import Arrays, PrepareOrder, Release
from fedaux.flower.dropin_client import answer
from fedaux.flower.federation import read_reply
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import serialize
from fedaux.flower.user_model import ACTION, FeaturesOf
from fedaux.models import flatten_state
from fedaux.privacy.module_validation import keeps_records_apart

MAP: Arrays = {"mean": np.zeros(4, np.float32), "basis": np.eye(4, 1, dtype=np.float32)}  # φ is a feature's sign


@keeps_records_apart
class Net(nn.Module):
    """A user's network; with `norm` it normalises over the batch, which private records do not allow."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        last = nn.BatchNorm1d(4, track_running_stats=False) if norm else nn.Identity()
        self.features = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), last)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


class DropInClient:
    """A client with no other handler."""

    def __init__(
        self,
        folder: Path,
        rows: NDArray[Any],
        audit: AuditConfig,
        model: Callable[[], nn.Module] = Net,
        public: Arrays = MAP,
        features: str | FeaturesOf = "features",
        **privacy: Any,
    ) -> None:
        self.folder, self.public, app = folder, public, ClientApp()
        labels = np.zeros(len(rows), np.int64)
        answer(
            app,
            model=model,
            data=lambda context: (rows, labels),
            vault=folder,
            epsilon=audit.epsilon,
            delta=audit.delta,
            features=features,
            **privacy,
        )
        self.grid = InProcessGrid(app, 1, {})

    def ask(self, weights: Arrays) -> Message:
        """The reply of a client that has not been asked before."""
        shutil.rmtree(self.folder, ignore_errors=True)
        order = PrepareOrder("1", "model", "class-embedding", 2, 4, "", 0, weights, self.public)
        (node,) = self.grid.get_node_ids()
        (reply,) = self.grid.send_and_receive([Message(serialize(order), node, f"query.{ACTION}")])
        return reply

    def values(self, weights: Arrays) -> Vector:
        return np.asarray(read_reply(Release, self.ask(weights)).arrays["values"], np.float64)


def batch_norm(folder: Path, audit: AuditConfig) -> AttackResult:
    """Weights whose activations are zero on random rows, not on the client's: no test run would show the mixing."""
    rows = np.random.default_rng(0).uniform(0.9, 1.1, size=(64, 8))
    other = np.concatenate([np.full((1, 8), 1000.0), rows[1:]])
    weights = _mixing_weights(norm=True)
    clients = [
        DropInClient(folder / which, x, audit, partial(Net, norm=True))
        for which, x in (("one", rows), ("other", other))
    ]
    DropInClient(folder / "control", rows, audit).values(_mixing_weights(norm=False))  # clients answer such an order
    if all(refused(client.ask(weights)) for client in clients):
        return AttackResult(audit.epsilon, 0.0, "both neighbours refuse the network")
    draws = [partial(client.values, weights) for client in clients]
    return distinguish(draws, audit.fewer_draws(), "one of 64 rows is an outlier")


def embedding_memory(folder: Path, audit: AuditConfig) -> AttackResult:
    """An embedding that shortens its own rows when they are looked up, `max_norm`: it remembers who came before.

    The first record looks all rows up, or none. One such row is another number the second time.
    """
    tokens, width = 64, 8
    row, column, once = _shortened_twice(width)
    weights = _memory_net(tokens, width, row, column)
    x = np.zeros((tokens, tokens - 1), np.int64)  # record i has the token i once, and paddings
    x[1:, 0] = np.arange(1, tokens)
    other = x.copy()
    other[0] = np.arange(1, tokens)
    public = {**MAP, "mean": np.array([once, 0, 0, 0], np.float32)}  # φ is 0 the first time, and ±1 the second
    network = partial(_embedding_net, tokens, width)
    replies = []
    for which, rows in (("one", x), ("other", other)):
        client = DropInClient(folder / which, rows, audit, network, public, "0", unsafe_seed=1)
        replies.append(client.ask(weights))
    return compare_replies(replies, audit, f"one of {tokens} records has all {tokens - 1} tokens, or none")


def _embedding_net(tokens: int, width: int) -> nn.Module:
    embedding = nn.Embedding(tokens, width, max_norm=1.0)
    extractor = nn.Sequential(embedding, nn.Flatten(), nn.Linear(width * (tokens - 1), 4))
    return nn.Sequential(extractor, nn.Linear(4, 2))


def _shortened_twice(width: int) -> tuple[Tensor, int, float]:
    """(a row that one shortening leaves too long, a coordinate that the second one changes, its value in between)."""
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        embedding = nn.Embedding(1, width, max_norm=1.0)
        row = torch.from_numpy((1000 * rng.normal(size=width)).astype(np.float32))
        with torch.no_grad():
            embedding.weight[0] = row
            once, twice = (embedding(torch.tensor([0]))[0].clone() for _ in range(2))
        column = int((once - twice).abs().argmax())
        if once[column] != twice[column]:
            return row, column, float(once[column])
    raise AttackSkipped("embeddings of this machine are shortened once and for all")


def _memory_net(tokens: int, width: int, row: Tensor, column: int) -> Arrays:
    """The first feature is this coordinate of a record's first token."""
    net: Any = _embedding_net(tokens, width)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net[0][0].weight[1:] = row
        net[0][2].weight[0, column] = 1.0
    return flatten_state(net)


def noise(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record exchanged for its opposite: the sum of its class moves by 2, as far as is claimed."""
    net = Net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.features[0].weight[0, 0] = 1.0  # type: ignore[operator]
    rows = np.ones((8, 8))
    other, weights = np.concatenate([np.zeros((1, 8)), rows[1:]]), flatten_state(net)
    middle = {**MAP, "mean": np.full(4, 0.5, np.float32)}
    clients = [DropInClient(folder / which, x, audit, public=middle) for which, x in (("one", rows), ("other", other))]
    draws = [partial(client.values, weights) for client in clients]
    return distinguish(draws, audit.more_draws())


def _mixing_weights(norm: bool) -> Arrays:
    """φ is the sign of z + 0.02, with z a row's sum in units of the batch's deviation."""
    net = Net(norm)
    with torch.no_grad():
        for parameter in net.features[0].parameters():
            parameter.zero_()
        net.features[0].weight[0] = 1.0  # type: ignore[operator]
        net.features[0].bias[0] = -5.0  # type: ignore[operator]
        if norm:
            net.features[2].bias[0] = 0.02  # type: ignore[operator]
    return flatten_state(net)

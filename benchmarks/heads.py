"""Linear mode with simulated clients, beside stacked heads written by hand: T1 alone,
and a whole round.

The bare arm keeps all features in memory, trains the heads of a round as one tensor
with gradients of its own, and has neither messages nor accounts nor checks.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import Row, compare
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, PretrainConfig
from fedaux.core.rng import torch_stream
from fedaux.core.timing import Costs
from fedaux.data.federated import open_data
from fedaux.messages import Federation, TrainOrder, Update
from fedaux.runs.runner import in_process
from fedaux.server.preparation import initial_state
from fedaux.server.round import Round
from fedaux.server.run_state import RunState
from fedaux.server.server import Server, make_server

CLIENTS = 32
RECORDS = 20_000
INPUTS = 64
CLASSES = 10
LR, EPSILON, BETA1, BETA2 = 1e-3, 1e-8, 0.9, 0.999  # of Adam


def settings(folder: Path, features: int) -> Config:
    """FedDF on random rows, split by Dirichlet(1): the clients have unlike numbers of
    records.
    """
    rng = np.random.default_rng(0)
    for name, size in (("private", RECORDS), ("aux", 2000)):
        (folder / name).mkdir()
        np.save(
            folder / name / "x.npy", rng.normal(size=(size, INPUTS)).astype(np.float32)
        )
        np.save(folder / name / "y.npy", rng.integers(CLASSES, size=size))
    return Config(
        method="feddf+p",
        head_only=True,
        head_features="raw",  # as the bare arm takes them
        prototypes=(PrototypeSpec.of("mlp", features=features, norm="none"),),
        data=DataConfig(
            source="npy", path=str(folder / "private"), clients=CLIENTS, alpha=1.0
        ),
        aux=AuxConfig(source="npy", path=str(folder / "aux")),
        pretrain=PretrainConfig(epochs=0),
    )


@dataclass(frozen=True)
class Ours:
    """A run that has begun."""

    server: Server
    federation: Federation
    state: RunState

    @classmethod
    def at(cls, config: Config, folder: Path) -> Ours:
        server = make_server(config, cache=folder / "cache")
        state = initial_state(server)
        server.restore(state)
        federation = in_process(config, folder / "run", server.cache)
        ours = cls(server, federation, state)
        # every client computes its features
        assert len(ours.train()) == config.data.clients
        return replace(ours, state=state.with_clients(server.clients, prepared=True))

    def orders(self) -> list[TrainOrder]:
        return [
            self.server.orders.train(self.state, client)
            for client in self.server.clients
        ]

    def train(self) -> list[Update]:
        """T1, from orders to replies."""
        return [
            reply
            for reply in self.federation.ask(self.orders())
            if isinstance(reply, Update)
        ]

    def round(self) -> RunState:
        """T1 to T3, and the test."""
        current = Round.start(
            self.server, None, self.state, self.server.clients, Costs()
        )
        for reply in self.federation.ask(self.orders()):
            assert isinstance(reply, Update), reply
            current.add(reply)
        return current.finish(self.state)


@dataclass(frozen=True)
class Bare:
    """The same arithmetic by hand."""

    features: Tensor  # of all private records
    labels: Tensor
    parts: list[Tensor]  # rows of each client
    seeds: list[int]
    weight: Tensor  # the server's head, (C, H)
    bias: Tensor
    distill: Tensor
    test: Tensor
    test_labels: Tensor

    @classmethod
    def of(cls, ours: Ours) -> Bare:
        data = open_data(ours.server.config)
        server = ours.server
        (label,) = ours.state.weights
        parameters = torch.tensor(ours.state.weights[label]["parameters"])
        h0 = server.public.h0[label]
        test = server.public.test_inputs(label)
        assert test is not None
        weight, bias = parameters.split([len(parameters) - CLASSES, CLASSES])  # type: ignore[no-untyped-call]
        return cls(
            torch.tensor(h0.features(data.private).gather()),
            torch.tensor(data.private.labels),
            [torch.tensor(part) for part in data.parts],
            [order.seed for order in ours.orders()],
            weight.view(CLASSES, -1),
            bias,
            torch.tensor(server.public.distill_inputs(label).gather()),
            torch.tensor(test.gather()),
            torch.tensor(test.labels),
        )

    @torch.no_grad()
    def train(self, batch_size: int = 32) -> tuple[Tensor, Tensor, Tensor]:
        """(weights, biases, losses) of all clients, in descending order of their
        size.
        """
        ranked = sorted(range(len(self.parts)), key=lambda i: -len(self.parts[i]))
        orders = [
            self.parts[i][_permutation(len(self.parts[i]), self.seeds[i])]
            for i in ranked
        ]
        sizes = torch.tensor([len(order) for order in orders])
        steps = math.ceil(int(sizes[0]) / batch_size)
        rows = torch.nn.utils.rnn.pad_sequence(orders, batch_first=True)
        rows = F.pad(rows, (0, steps * batch_size - rows.shape[1]))
        there = (torch.arange(steps * batch_size) < sizes[:, None]).float()
        weight, bias = (
            tensor.repeat(len(ranked), *[1] * tensor.ndim)
            for tensor in (self.weight, self.bias)
        )
        moments = [torch.zeros_like(tensor) for tensor in (weight, weight, bias, bias)]
        losses = torch.zeros(len(ranked))
        for step in range(steps):
            k = int((sizes > step * batch_size).sum())
            batch = slice(step * batch_size, (step + 1) * batch_size)
            index = rows[:k, batch]
            mask = there[:k, batch]
            x = self.features[index]
            y = self.labels[index]
            log_p = torch.baddbmm(
                bias[:k, None], x, weight[:k].transpose(1, 2)
            ).log_softmax(2)
            losses[:k] -= (log_p.gather(2, y[..., None])[..., 0] * mask).sum(1)
            gradient = log_p.exp()
            gradient.scatter_add_(2, y[..., None], torch.full((*y.shape, 1), -1.0))
            gradient *= (mask / mask.sum(1, keepdim=True))[..., None]
            pairs = (
                (weight, gradient.transpose(1, 2) @ x, *moments[:2]),
                (bias, gradient.sum(1), *moments[2:]),
            )
            for parameter, g, mean, square in pairs:
                mean[:k].lerp_(g, 1 - BETA1)
                square[:k].mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
                scale = (square[:k].sqrt() / math.sqrt(1 - BETA2 ** (step + 1))).add_(
                    EPSILON
                )
                parameter[:k].addcdiv_(
                    mean[:k], scale, value=-LR / (1 - BETA1 ** (step + 1))
                )
        return weight, bias, losses / sizes

    def round(self) -> float:
        """T1, the uniform ensemble on D_distill, one epoch of distillation into the
        average, and the test.
        """
        weight, bias, _ = self.train()
        sizes = torch.tensor(sorted((len(part) for part in self.parts), reverse=True))
        shares = sizes / sizes.sum()
        logits = sum(
            self.distill @ w.T + b for w, b in zip(weight, bias, strict=True)
        ) / len(weight)
        soft = torch.softmax(torch.as_tensor(logits), 1)
        head = torch.nn.Linear(self.weight.shape[1], CLASSES)
        head.load_state_dict(
            {"weight": torch.einsum("k,kch->ch", shares, weight), "bias": shares @ bias}
        )
        adam = torch.optim.Adam(head.parameters(), 5e-5)
        for batch in torch.randperm(len(soft)).split(128):
            loss = F.kl_div(
                head(self.distill[batch]).log_softmax(1),
                soft[batch],
                reduction="batchmean",
            )
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        with torch.no_grad():
            return float((head(self.test).argmax(1) == self.test_labels).float().mean())


def _permutation(size: int, seed: int) -> Tensor:
    return torch.randperm(size, generator=torch_stream(seed))


def same(ours: list[Update], bare: tuple[Tensor, Tensor, Tensor]) -> bool:
    """Whether both arms trained the same heads (a batch of one row, which ours merges,
    may differ).
    """
    by_size = sorted(ours, key=lambda update: -update.records)
    weights = np.stack([update.weights["parameters"] for update in by_size])
    return np.allclose(weights[:, :-CLASSES], bare[0].flatten(1).numpy(), atol=2e-3)


def rows() -> Iterator[Row]:
    for features in (64, 512):
        with tempfile.TemporaryDirectory() as folder:
            ours = Ours.at(settings(Path(folder), features), Path(folder))
            bare = Bare.of(ours)
            assert same(ours.train(), bare.train())
            setting = f"{CLIENTS} heads of {features} features, {sum(map(len, bare.parts)):,} records"
            yield compare("B5", f"T1 of {setting}", 1.3, ours.train, bare.train)
            yield compare(
                "B5", f"linear round of {setting}", 1.3, ours.round, bare.round
            )

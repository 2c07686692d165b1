"""A round of 80 clients beside the loop of a notebook: a fresh model, Adam and DataLoader for each client.

The notebook keeps all models of the round, for their average and their ensemble, and distils into the average.
In linear mode it trains fresh heads on features that it has computed before.

    python -m benchmarks.plain_loop ours|plain     # megabytes that a round adds to the peak of a fresh process
"""

from __future__ import annotations

import copy
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.heads import CLASSES, Ours, settings
from benchmarks.measure import Row, alternate
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, PretrainConfig
from fedaux.data.federated import open_data
from fedaux.data.records import to_tensor

CLIENTS = 80


class Notebook:
    def __init__(self, model: nn.Module, clients: list[TensorDataset], distill: Tensor, test: TensorDataset) -> None:
        self.model, self.clients, self.distill, self.test = model, clients, distill, test

    @classmethod
    def of(cls, ours: Ours) -> Notebook:
        """The same data and the same first model."""
        server, data = ours.server, open_data(ours.server.config)
        (label,) = ours.state.weights
        private = server.public.h0[label].features(data.private) if server.config.head_only else data.private
        test = server.public.test_inputs(label)
        assert test is not None
        labels = torch.tensor(private.labels)
        clients = [TensorDataset(to_tensor(private.gather(part)), labels[part]) for part in data.parts]
        distill = to_tensor(server.public.distill_inputs(label).gather())
        model = copy.deepcopy(server.learners.loaded(label, ours.state.weights[label]))
        return cls(model, clients, distill, TensorDataset(to_tensor(test.gather()), torch.tensor(test.labels)))

    def round(self) -> float:
        models = [self.train(client) for client in self.clients]
        with torch.no_grad():
            ensemble = torch.stack([model.eval()(self.distill) for model in models]).mean(0).softmax(1)
        student, states = copy.deepcopy(self.model), [model.state_dict() for model in models]
        shares = torch.tensor([len(client) for client in self.clients]) / sum(map(len, self.clients))
        student.load_state_dict(
            {
                name: sum(share * state[name] for share, state in zip(shares, states, strict=True)).to(first.dtype)  # type: ignore[union-attr]
                for name, first in states[0].items()
            }
        )
        adam = torch.optim.Adam(student.eval().parameters(), 5e-5)
        for x, soft in DataLoader(TensorDataset(self.distill, ensemble), 128, shuffle=True):
            loss = F.kl_div(student(x).log_softmax(1), soft, reduction="batchmean")
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        with torch.no_grad():
            correct = [(student(x).argmax(1) == y).sum().item() for x, y in DataLoader(self.test, 512)]
        return sum(correct) / len(self.test)

    def train(self, client: TensorDataset) -> nn.Module:
        model = copy.deepcopy(self.model).train()
        adam = torch.optim.Adam(model.parameters(), 1e-3)
        for x, y in DataLoader(client, 32, shuffle=True):
            loss = F.cross_entropy(model(x), y)
            adam.zero_grad()
            loss.backward()
            adam.step()
        return model


def whole_networks(folder: Path, width: int, records: int, public: int) -> Config:
    """FedDF with a ResNet-8 on random images."""
    rng = np.random.default_rng(0)
    for name, size in (("private", records), ("aux", public)):
        (folder / name).mkdir()
        np.save(folder / name / "x.npy", rng.integers(0, 256, (size, 16, 16, 3)).astype(np.uint8))
        np.save(folder / name / "y.npy", rng.integers(CLASSES, size=size))
    return Config(
        method="feddf+p",
        prototypes=(PrototypeSpec.of("resnet8", width=width),),
        data=DataConfig(source="npy", path=str(folder / "private"), clients=CLIENTS, alpha=10.0),
        aux=AuxConfig(source="npy", path=str(folder / "aux")),
        pretrain=PretrainConfig(epochs=0),
    )


def added_megabytes(arm: str) -> float:
    """By which a round lifts the peak of this process; a round of small networks has been run before."""
    for width in (4, 64):
        with tempfile.TemporaryDirectory() as folder:
            ours = Ours.at(whole_networks(Path(folder), width, 800, 40), Path(folder), train=False)
            arms = {"ours": ours.round, "plain": Notebook.of(ours).round}
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            arms[arm]()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours.at(settings(Path(folder), 512, CLIENTS, 40_000), Path(folder))
        yield faster(ours, 3.0, "linear round, 512 features")
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours.at(whole_networks(Path(folder), 16, 4000, 250), Path(folder), train=False)
        yield faster(ours, 1.0, "round of whole networks, ResNet-8 of width 16")
    command = [sys.executable, "-m", "benchmarks.plain_loop"]
    mine, plain = (float(subprocess.check_output([*command, arm], text=True)) for arm in ("ours", "plain"))
    figures = f"{plain / mine:.1f}: {plain:,.0f} MB and {mine:,.0f} MB"
    setting = f"memory of a round, {CLIENTS} ResNet-8 of width 64: plain loop / ours"
    yield Row("B11", setting, "≥ 5", figures, plain >= 5 * mine)


def faster(ours: Ours, limit: float, setting: str) -> Row:
    """How many times as long the notebook takes."""
    times = alternate({"ours": ours.round, "plain": Notebook.of(ours).round}, 3)
    wall, processor = (
        min(sample[clock] for sample in times["plain"]) / min(sample[clock] for sample in times["ours"])
        for clock in (0, 1)
    )
    figures = f"processor {processor:.2f}; wall {wall:.2f}; ours {min(times['ours'])[0] * 1000:,.0f} ms"
    return Row("B11", f"{setting}, {CLIENTS} clients: plain loop / ours", f"≥ {limit:g}", figures, processor >= limit)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(added_megabytes(sys.argv[1]))

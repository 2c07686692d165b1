"""B2: one round of FedAUX on Ray beside a Flower app written by hand: same payload,
training, teachers, distillation.

Both arms run in turn on one grid of two workers. Wall time decides: it takes the whole
machine. The app by hand knows the teachers' weights from the start, and checks nothing
that it receives.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor, nn

from benchmarks.measure import Row
from fedaux.config.presets import DEMO
from fedaux.core.timing import Costs
from fedaux.data.federated import open_data
from fedaux.data.records import to_tensor
from fedaux.flower import client_app
from fedaux.flower.federation import GridFederation
from fedaux.flower.node_registry import NodeRegistry
from fedaux.models import build
from fedaux.scoring.teacher_weights import PublicEmbedding
from fedaux.server.loop import collect_updates
from fedaux.server.preparation import collect_releases, initial_state
from fedaux.server.round import Round
from fedaux.server.run_state import RunState
from fedaux.server.server import Server, make_server

LIMIT = 1.05
REPEATS = 9
# environment variable: the folder of the run, for the workers
FOLDER = "FEDAUX_BENCHMARK"
CONFIG = replace(DEMO, pretrain=replace(DEMO.pretrain, epochs=0))


def rows() -> Iterator[Row]:
    """In a process of its own for Ray's sake: its server runs in a thread, and leaves
    its times in a file.
    """
    from flwr.simulation import run_simulation

    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            FOLDER: folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        resources = {
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2},
        }
        run_simulation(server, app, CONFIG.data.clients, backend_config=resources)  # type: ignore[arg-type]
        times = json.loads((Path(folder) / "times.json").read_text())
    ours, bare = (sorted(times[arm]) for arm in ("ours", "bare"))
    ratios = [ours[0] / bare[0], ours[len(ours) // 2] / bare[len(bare) // 2]]
    figures = f"wall {ratios[0]:.2f} min, {ratios[1]:.2f} median; ours {1000 * ours[0]:,.0f} ms"
    yield Row(
        "B2",
        "a round of the demo on Ray, 2 workers",
        f"≤ {LIMIT:g}",
        figures,
        min(ratios) <= LIMIT,
    )


app = ClientApp()
server = ServerApp()


def site(handler: str, message: Message, context: Context) -> Message:
    settings = {
        "config": json.dumps(CONFIG.to_dict()),
        "vault": f"{os.environ[FOLDER]}/clients",
    }
    context.node_config.update(settings)
    return client_app.app._registered_funcs[handler](message, context)


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    return site("query.hello", message, context)


@app.query("prepare")
def prepare(message: Message, context: Context) -> Message:
    return site("query.prepare", message, context)


@app.train()
def train_ours(message: Message, context: Context) -> Message:
    return site("train.default", message, context)


@app.train("bare")
def train_bare(message: Message, context: Context) -> Message:
    """The client by hand: a resident model, an epoch of Adam."""
    model = network()
    (x, y) = records(int(context.node_config["partition-id"]))
    model.load_state_dict(message.content["model"].to_torch_state_dict())
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), CONFIG.local.lr)
    for batch in torch.randperm(len(y)).split(CONFIG.local.batch_size):
        loss = F.cross_entropy(model(to_tensor(x[batch])), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    reply = {
        "model": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"records": len(y)}),
    }
    return Message(RecordDict(reply), reply_to=message)


@cache
def network() -> nn.Module:
    torch.set_num_threads(1)
    return build(CONFIG.prototypes[0], open_data(CONFIG).test.shape, 10, 0)


@cache
def records(client: int) -> tuple[np.ndarray, Tensor]:
    own = open_data(CONFIG).client(client)
    return own.gather(), torch.from_numpy(own.labels)


@server.main()
def main(grid: Grid, context: Context) -> None:
    torch.set_num_threads(1)
    folder = Path(os.environ[FOLDER])
    parts = make_server(CONFIG, cache=folder / "cache")
    nodes = NodeRegistry(
        grid, parts.clients, open_data(CONFIG).classes
    ).wait_for_clients(60, len(parts.clients))
    federation = GridFederation(grid, nodes)
    state = initial_state(parts)
    embedding = parts.restore(state)
    state, failures = collect_releases(parts, federation, state, parts.clients)
    assert embedding is not None
    assert not failures, failures
    weights = embedding.teacher_weights(state.releases, parts.clients)
    bare = Bare(
        grid,
        [nodes[client] for client in parts.clients],
        np.stack([weights.of(c) for c in parts.clients]),
    )
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(REPEATS + 1):
        start = time.perf_counter()
        round_of_ours(parts, federation, embedding, state)
        middle = time.perf_counter()
        bare.round()
        if turn:  # the first one imports and allocates
            times["ours"].append(middle - start)
            times["bare"].append(time.perf_counter() - middle)
    (folder / "times.json").write_text(json.dumps(times))


def round_of_ours(
    parts: Server,
    federation: GridFederation,
    embedding: PublicEmbedding,
    state: RunState,
) -> None:
    current = Round.start(parts, embedding, state, parts.clients, Costs())
    collect_updates(
        parts, federation, state, current, len(parts.clients), parts.clients
    )
    assert not current.failures, current.failures
    current.finish(state)


class Bare:
    """The server by hand. `weights` are the teachers', (clients, examples)."""

    def __init__(self, grid: Grid, nodes: list[int], weights: np.ndarray) -> None:
        self.grid = grid
        self.nodes = nodes
        self.weights = dict(zip(nodes, torch.from_numpy(weights).float(), strict=True))
        public = make_server(CONFIG).public
        test = open_data(CONFIG).test
        self.public = public.distill.tensor()
        self.test = test.tensor()
        self.labels = torch.from_numpy(test.labels)
        self.start = {
            name: tensor.clone() for name, tensor in network().state_dict().items()
        }

    def round(self) -> float:
        """The accuracy after a round that starts from the same weights as any other."""
        model = network()
        arrays = ArrayRecord(self.start)
        messages = [
            Message(RecordDict({"model": arrays}), node, "train.bare")
            for node in self.nodes
        ]
        total = 0
        mean = dict[str, Tensor]()
        ensemble = torch.zeros(len(self.public), 10)
        for reply in self.grid.send_and_receive(messages):
            weights = reply.content["model"].to_torch_state_dict()
            size = int(reply.content["metrics"]["records"])
            total += size
            mean = {
                name: mean.get(name, 0) + size * tensor
                for name, tensor in weights.items()
            }
            model.load_state_dict(weights)
            ensemble += self.weights[reply.metadata.src_node_id][:, None] * predict(
                model, self.public
            )
        model.load_state_dict({name: tensor / total for name, tensor in mean.items()})
        soft_labels = torch.softmax(
            ensemble / sum(self.weights.values())[:, None], dim=1
        )  # type: ignore[index]
        self.distill(model, soft_labels)
        return float(
            (predict(model, self.test).argmax(1) == self.labels).float().mean()
        )

    def distill(self, model: nn.Module, soft_labels: Tensor) -> None:
        optimizer = torch.optim.Adam(model.parameters(), CONFIG.distill.lr)
        for _ in range(CONFIG.distill.epochs):
            for batch in torch.randperm(len(self.public)).split(
                CONFIG.distill.batch_size
            ):
                loss = F.kl_div(
                    F.log_softmax(model(self.public[batch]), 1),
                    soft_labels[batch],
                    reduction="batchmean",
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def predict(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    with torch.inference_mode():
        return torch.cat([model(block) for block in x.split(512)])

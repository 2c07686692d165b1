"""B1: an order to a client and its reply, as Flower messages, beside a loop by hand
that is sent plain bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from benchmarks.measure import Action, Row, compare
from fedaux import Config
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import DataConfig
from fedaux.core.rng import torch_stream
from fedaux.data.federated import open_private
from fedaux.data.records import Records, to_tensor
from fedaux.messages import TrainOrder, Update
from fedaux.models import build, flatten_state, load_state
from fedaux.runs.runner import in_process
from fedaux.server.preparation import collect_releases, initial_state
from fedaux.server.server import make_server

Array = NDArray[Any]
CLIENT, RECORDS = "client-000", 500  # records of a client with images of 32×32
NETWORKS = (
    (
        "ResNet-8, width 16, 500 images of 32×32",
        PrototypeSpec.of("resnet8", width=16),
        1.02,
        4,
    ),
    ("cnn, digits", PrototypeSpec("cnn"), 1.05, 60),
    ("mlp, digits", PrototypeSpec("mlp"), 1.10, 200),
)


def rows() -> Iterator[Row]:
    for setting, network, limit, repeats in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            yield compare(
                "B1", f"client: {setting}", limit, *arms(network, Path(folder)), repeats
            )


def arms(network: PrototypeSpec, folder: Path) -> tuple[Action, Action]:
    """(ours, by hand): the same records, batches and steps from the same weights, both
    with a resident model.
    """
    config = settings(network, folder)
    server = make_server(config, cache=folder / "cache")
    federation = in_process(config, folder, folder / "cache")
    state = initial_state(server)
    server.restore(state)
    state, _ = collect_releases(server, federation, state, [CLIENT])
    order = server.orders.train(state, CLIENT)
    records = open_private(config, CLIENT)[0]
    model = build(network, records.shape, order.classes, 0)
    load_state(model, order.weights)
    weights = [tensor.numpy().copy() for tensor in model.state_dict().values()]

    def ours() -> Update:
        (reply,) = federation.ask([order])
        assert isinstance(reply, Update), reply
        return reply

    def bare() -> list[Array]:
        return train_by_hand(model, weights, order, records)

    bare()
    assert np.allclose(
        flatten_state(model)["parameters"], ours().weights["parameters"], atol=1e-6
    )
    return ours, bare


def settings(network: PrototypeSpec, folder: Path) -> Config:
    config = replace(
        DEMO, prototypes=(network,), pretrain=replace(DEMO.pretrain, epochs=0)
    )
    if network.name != "resnet8":
        return config
    # half of what is not for tests is public, the rest belongs to two clients
    size = round(4 * RECORDS / 0.8)
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.integers(0, 256, (size, 32, 32, 3)).astype(np.uint8))
    np.save(folder / "y.npy", np.arange(size) % 10)
    return replace(config, data=DataConfig(source="npy", path=str(folder), clients=2))


def train_by_hand(
    model: nn.Module, weights: list[Array], order: TrainOrder, records: Records
) -> list[Array]:
    """Bytes to the client, an epoch of Adam, bytes back, and what the server reads from
    them.
    """
    request = b"".join(array.tobytes() for array in weights)
    tensors = list(model.state_dict().values())
    for tensor, values in zip(tensors, read(tensors, request), strict=True):
        tensor.copy_(torch.tensor(values))
    x = records.gather()
    y = torch.from_numpy(records.labels)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), order.lr)
    generator = torch_stream(order.seed)
    total = 0.0
    for batch in torch.randperm(len(y), generator=generator).split(order.batch_size):
        loss = F.cross_entropy(model(to_tensor(x[batch])), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    reply = b"".join(tensor.numpy().tobytes() for tensor in tensors)
    return read(tensors, reply)


def read(tensors: list[torch.Tensor], data: bytes) -> list[Array]:
    arrays = []
    start = 0
    for tensor in tensors:
        dtype = np.int64 if tensor.dtype == torch.int64 else np.float32
        arrays.append(
            np.frombuffer(data, dtype, tensor.numel(), start).reshape(tensor.shape)
        )
        start += tensor.numel() * tensor.element_size()
    return arrays

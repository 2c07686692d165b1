"""A small Flower app with FedAUX dropped in, to look at closely."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn

from fedaux.flower import FedAUX, add_release_handler, input_of
from fedaux.flower.in_process import InProcessGrid

CLIENTS = 4


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def own_data(context: Context) -> tuple[Tensor, Tensor]:
    """Three classes, 60 rows, mostly of the client's own class."""
    node = int(context.node_config["partition-id"])
    labels = torch.tensor([node % 3] * 50 + [0, 1, 2, 0, 1] * 2)
    return torch.randn(
        60, 6, generator=torch.Generator().manual_seed(node)
    ) + 3 * torch.eye(3, 6)[labels], labels


def public() -> Tensor:
    kinds = 3 * torch.eye(3, 6)[torch.arange(200) % 3]
    return torch.randn(200, 6, generator=torch.Generator().manual_seed(99)) + kinds


def train(message: Message, context: Context) -> Message:
    """Moves every number by the client's own amount, and counters by seven, as training
    would.
    """
    sent = {key: array.numpy() for key, array in message.content["arrays"].items()}
    step = np.float32(0.01 * (int(context.node_config["partition-id"]) + 1))
    moved = {
        key: Array(np.asarray(old + (step if old.dtype.kind == "f" else 7)))
        for key, old in sent.items()
    }
    metrics = MetricRecord({"num-examples": 60, "loss": 1.0})
    return Message(
        RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message
    )


def make_app(**options: Any) -> ClientApp:
    app = ClientApp()
    app.train()(train)
    settings: dict[str, Any] = {
        "model": net,
        "features": input_of("2"),
        "data": own_data,
        "epsilon": 1.0,
    }
    add_release_handler(app, **{**settings, "vault": "/nowhere", **options})
    return app


def make_strategy(**options: Any) -> FedAUX:
    settings = {
        "model": net(),
        "features": input_of("2"),
        "public": public(),
        "classes": 3,
        "fraction_evaluate": 0.0,
    }
    return FedAUX(**{"keep": None, **settings, **options})


def make_grid(
    vault: Path, app: Callable[..., Message] | None = None, **settings: Any
) -> InProcessGrid:
    return InProcessGrid(
        app or make_app(), CLIENTS, {"fedaux-vault": str(vault), **settings}
    )


def one_round(
    strategy: FedAvg, grid: InProcessGrid, round_: int = 1
) -> tuple[dict[str, Tensor], MetricRecord]:
    arrays = ArrayRecord(net().state_dict())
    replies = grid.send_and_receive(
        strategy.configure_train(round_, arrays, ConfigRecord(), grid)
    )
    found, metrics = strategy.aggregate_train(round_, replies)
    assert found is not None
    assert metrics is not None
    return dict(found.to_torch_state_dict()), metrics


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[key], other[key]) for key in one
    )


def values(strategy: FedAUX) -> dict[str, list[int]]:
    return {
        node: one.arrays["values"].tolist()
        for node, one in sorted(strategy.releases.items())
    }


def spoilt(
    node: int, kind: str, spoil: Callable[[Message, Message], Message]
) -> Callable[..., Message]:
    """The app, but this node spoils its replies to messages of this kind: spoil(reply,
    message).
    """
    app = make_app()

    def handle(message: Message, context: Context) -> Message:
        wrong = (
            message.metadata.message_type == kind
            and message.metadata.dst_node_id == node
        )
        reply = app(message, context)
        try:
            return spoil(reply, message) if wrong else reply
        except Exception as error:  # it would look like a client that failed
            pytest.fail(f"the reply could not be spoilt: {error!r}")

    return handle


def warnings_of(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING
    )

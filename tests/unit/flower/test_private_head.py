"""A Flower app that exists already gets the private head in one exchange: no client
trains, and weights stay.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Error, Message
from flwr.clientapp import ClientApp
from torch import Tensor

from fedaux.core.errors import SettingsError
from fedaux.flower import PrivateHead, add_release_handler, input_of
from fedaux.flower.in_process import InProcessGrid
from helpers.drop_in_app import CLIENTS, make_grid, net, own_data, public, warnings_of

pytestmark = pytest.mark.usefixtures("known_entries")


def make_app(**options: Any) -> ClientApp:
    """An app with the handler for releases, and none that trains."""
    app = ClientApp()
    settings: dict[str, Any] = {
        "model": net,
        "features": input_of("2"),
        "data": own_data,
        "scorer": "class-moments",
    }
    add_release_handler(
        app, **{**settings, "vault": "/nowhere", "epsilon": 20.0, **options}
    )
    return app


def make_strategy(**options: Any) -> PrivateHead:
    settings = {
        "model": net(),
        "head": "2",
        "public": public(),
        "classes": 3,
        "keep": None,
        "expected_records": 120,
    }
    return PrivateHead(**{**settings, "epsilon": 20.0, **options})


def played(strategy: PrivateHead, grid: InProcessGrid) -> dict[str, Tensor]:
    result = strategy.start(grid, ArrayRecord(net().state_dict()), num_rounds=1)
    return dict(result.arrays.to_torch_state_dict())


def accuracy(weights: dict[str, Tensor]) -> float:
    model = net()
    model.load_state_dict(weights)
    labels = torch.arange(300) % 3
    rows = (
        torch.randn(300, 6, generator=torch.Generator().manual_seed(5))
        + 3 * torch.eye(3, 6)[labels]
    )
    return float((model(rows).argmax(dim=1) == labels).float().mean())


@pytest.mark.parametrize("scorer", ["class-moments", "class-embedding"])
def test_one_exchange_gives_a_head_and_leaves_the_rest(
    scorer: str, tmp_path: Path
) -> None:
    strategy = make_strategy(scorer=scorer)
    weights = played(strategy, make_grid(tmp_path, make_app(scorer=scorer)))
    first = net().state_dict()
    assert all(
        torch.equal(weights[name], first[name]) for name in ("0.weight", "0.bias")
    )
    assert accuracy(first) < 0.6
    assert accuracy(weights) > 0.8
    assert len(strategy.releases) == CLIENTS
    assert "(20, 1e-05)-differentially private" in strategy.privacy
    assert "local models" not in strategy.privacy


def test_a_class_that_nobody_has_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def first_two(context: Any) -> tuple[Tensor, Tensor]:
        rows, labels = own_data(context)
        return rows[labels < 2], labels[labels < 2]

    played(make_strategy(), make_grid(tmp_path, make_app(data=first_two)))
    assert "knows nothing of class 2: about" in warnings_of(caplog)
    assert "class 0" not in warnings_of(caplog)


def test_too_few_releases_leave_the_head_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()

    def failing(message: Message, context: Any) -> Message:
        reply = app(message, context)
        return (
            Message(Error(8, "killed"), reply_to=message)
            if message.metadata.dst_node_id > 2
            else reply
        )

    strategy, grid = make_strategy(), make_grid(tmp_path, failing)
    assert (
        list(
            strategy.configure_train(
                1, ArrayRecord(net().state_dict()), ConfigRecord(), grid
            )
        )
        == []
    )
    assert strategy.aggregate_train(1, []) == (None, None)
    assert "1 of 4 clients made a release" in warnings_of(caplog)


def test_the_head_must_be_the_last_linear_layer() -> None:
    with pytest.raises(
        SettingsError, match=r"head = '1': it is a ReLU. Name the last nn.Linear"
    ):
        make_strategy(head="1")
    with pytest.raises(SettingsError, match="classes = 4"):
        make_strategy(classes=4)


def test_clients_that_come_later_add_their_releases(tmp_path: Path) -> None:
    strategy, arrays, grid = (
        make_strategy(fraction_train=0.5),
        ArrayRecord(net().state_dict()),
        make_grid(tmp_path, make_app()),
    )
    strategy.configure_train(1, arrays, ConfigRecord(), grid)
    before = {node: one.arrays["values"] for node, one in strategy.releases.items()}
    for number in range(2, 12):
        strategy.configure_train(number, arrays, ConfigRecord(), grid)
    assert len(before) == CLIENTS // 2
    assert len(strategy.releases) == CLIENTS
    assert all(
        np.array_equal(strategy.releases[node].arrays["values"], own)
        for node, own in before.items()
    )

"""The client's half of an existing app: its own code and node decide on its budget,
nobody else.
"""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from fedaux.core.errors import SettingsError
from fedaux.core.failures import Refusal
from fedaux.data.user_rows import UserRecords
from fedaux.flower.release_strategy import BudgetExhaustedError, NoReleaseError
from helpers.drop_in_app import (
    CLIENTS,
    make_app,
    make_grid,
    make_strategy,
    net,
    one_round,
    own_data,
    values,
    warnings_of,
)

pytestmark = pytest.mark.usefixtures("known_entries")


def test_asked_twice_a_client_says_the_same(tmp_path: Path) -> None:
    first, second = make_strategy(), make_strategy()
    one_round(first, make_grid(tmp_path))
    (path,) = (tmp_path / "client-0").glob("release-*.json")
    stored = path.read_bytes()
    one_round(second, make_grid(tmp_path))
    assert values(first) == values(second)
    assert path.read_bytes() == stored
    fresh = make_strategy()
    one_round(fresh, make_grid(tmp_path / "other"))
    assert values(fresh) != values(first)  # noise, not a function of the data


def test_a_vault_refuses_a_second_different_release(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one_round(make_strategy(), make_grid(tmp_path))
    other = make_strategy(model=net(1))  # other features: another question
    with pytest.raises(
        BudgetExhaustedError, match="all 4 clients refuse to make a release"
    ):
        one_round(other, make_grid(tmp_path))
    assert other.releases == {}
    assert "its privacy budget does not allow it" in warnings_of(caplog)
    allowed = make_strategy(model=net(1))
    one_round(allowed, make_grid(tmp_path, make_app(epsilon_total=1.5)))
    assert len(allowed.releases) == CLIENTS


@pytest.mark.parametrize("kind", ["loader", "shuffled", "dataset", "columns"])
def test_what_an_app_trains_on_is_read_as_its_arrays_are(
    tmp_path: Path, kind: str
) -> None:
    """A `DataLoader` was unpacked into its batches, and every client failed."""

    def data(context: Context) -> object:
        rows, labels = own_data(context)
        pairs = TensorDataset(rows, labels)
        if kind == "dataset":
            return pairs
        if kind == "columns":  # as Flower Datasets have them
            columns = [
                {"img": row, "label": int(label)}
                for row, label in zip(rows, labels, strict=True)
            ]
            return DataLoader(columns, batch_size=7)  # type: ignore[arg-type]
        return DataLoader(pairs, batch_size=7, shuffle=kind == "shuffled")

    read = UserRecords.of_data(data(context_of(1)))
    expected = UserRecords.of(*own_data(context_of(1)))
    assert np.array_equal(read.x, expected.x)
    assert np.array_equal(read.labels, expected.labels)
    strategy = make_strategy()
    one_round(strategy, make_grid(tmp_path, make_app(data=data)))
    assert len(strategy.releases) == CLIENTS


def test_a_loader_that_draws_a_record_twice_is_refused() -> None:
    pairs = TensorDataset(*own_data(context_of(0)))
    twice = DataLoader(pairs, sampler=RandomSampler(pairs, replacement=True))
    some = DataLoader(pairs, sampler=SubsetRandomSampler(range(9)))
    for loader in (twice, some):
        with pytest.raises(SettingsError, match="each record exactly once"):
            UserRecords.of_data(loader)
    with pytest.raises(SettingsError, match="leave test data out"):
        UserRecords.of_data((DataLoader(pairs), DataLoader(pairs)))
    with pytest.raises(SettingsError, match="Cannot read 4 things"):
        UserRecords.of_data([1, 2, 3, 4])


def context_of(node: int) -> Context:
    return Context(0, 0, {"partition-id": node}, RecordDict(), {})


def test_neither_a_run_nor_a_message_sets_the_budget(tmp_path: Path) -> None:
    strategy, grid = make_strategy(), make_grid(tmp_path)
    for context in grid._contexts.values():
        context.run_config.update(
            {
                "fedaux-epsilon": 100.0,
                "fedaux-vault": str(tmp_path / "theirs"),
                "epsilon": 100.0,
            }
        )
    arrays, config = (
        ArrayRecord(net().state_dict()),
        ConfigRecord({"epsilon": 100.0, "fedaux-epsilon": 100.0}),
    )
    list(grid.send_and_receive(strategy.configure_train(1, arrays, config, grid)))
    assert {one.epsilon for one in strategy.releases.values()} == {1.0}
    assert not (tmp_path / "theirs").exists()


def test_a_nodes_own_configuration_has_the_last_word(tmp_path: Path) -> None:
    strategy = make_strategy()
    one_round(
        strategy, make_grid(tmp_path, **{"fedaux-epsilon": 0.5, "fedaux-delta": 1e-6})
    )
    assert {(one.epsilon, one.delta) for one in strategy.releases.values()} == {
        (0.5, 1e-6)
    }


def test_who_is_not_chosen_spends_nothing(tmp_path: Path) -> None:
    strategy = make_strategy(fraction_train=0.5)
    one_round(strategy, make_grid(tmp_path))
    assert len(strategy.releases) == len(list(tmp_path.glob("client-*"))) == 2


def test_an_error_on_a_client_tells_nothing_of_its_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def data(context: Context) -> tuple[Tensor, Tensor]:
        raise ValueError("patient 4711")

    strategy = make_strategy()
    replies: list[Message] = []
    app = make_app(data=data)

    def handle(message: Message, context: Context) -> Message:
        return app(message, context)

    grid = make_grid(tmp_path, handle)
    answered = grid._handle
    grid._handle = lambda message: replies.append(answered(message)) or replies[-1]  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(NoReleaseError):
        one_round(strategy, grid)
    reasons = " ".join(reply.error.reason for reply in replies if reply.has_error())
    assert set(reasons.split()) == {Refusal.FAILED.value}
    assert "4711" not in reasons

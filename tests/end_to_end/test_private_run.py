"""A run that is private from end to end: scores and heads, one total, and no client
beyond its budget.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.accounts import Account
from fedaux.core.failures import Failure, Refusal
from fedaux.data.federated import open_data
from fedaux.messages import Update
from fedaux.privacy.account_file import read_account
from fedaux.privacy.module_validation import UnsupportedModuleError
from fedaux.runs.runner import in_process
from fedaux.server.preparation import initial_state
from fedaux.server.server import Server

CONFIG = Config(
    rounds=3,
    head_only=True,
    prototypes=(PrototypeSpec.of("cnn", width=8, features=16),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(fraction=0.9, limit=300),  # few private records
    pretrain=PretrainConfig(epochs=1, batch_size=128, min_crop_area=0.5, flip=False),
    local=LocalConfig(lr=0.02, epochs=2),
    distill=DistillConfig(epochs=1, lr=1e-3),
    privacy=PrivacyConfig(
        epsilon=0.3,
        epsilon_total=1.05,
        private_training=True,
        sample_rate=0.5,
        embedding_dim=4,
    ),
)


def test_scores_and_heads_have_one_total(tmp_path: Path) -> None:
    result = run(CONFIG, tmp_path / "run", cache=tmp_path / "cache")
    ledger = result.ledger
    assert ledger.unprotected_models == 0
    assert len(ledger.clients) == 3
    for client in ledger.clients:
        assert ledger.trained[client] == 3
        # what the scores left was spent on training, and no more
        assert 1.04 < ledger.epsilon(client) <= 1.05
        entries = read_account(tmp_path / "run" / "clients" / client)[1]
        assert (
            sum(entry.mechanism.steps for entry in entries if entry.trains) == 3 * 2 * 2
        )
    assert (
        "The certainty scores and the local models of this run are together (1.05, "
        "1e-05)" in result.statement
    )
    # a loss would be one more release
    assert [each.local_loss for each in result.state.history] == [0.0] * 3


# without sampling, the noise of a plan needs no search
WHOLE = replace(CONFIG, privacy=replace(CONFIG.privacy, sample_rate=1.0))


def test_a_client_that_has_trained_as_often_as_its_budget_allows_trains_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(WHOLE, privacy=replace(WHOLE.privacy, train_rounds=2))
    data = open_data(config)
    server = Server.of(
        config, data.aux, data.test, 10, data.clients, tmp_path / "cache"
    )
    state = initial_state(server)
    server.restore(state)
    one, two, three = (
        server.orders.train(replace(state, round=round_), "client-000")
        for round_ in range(3)
    )
    replies = []
    # each in another process, as it were: what is spent is on disk
    for order in (one, two, two, one):
        (reply,) = in_process(config, tmp_path).ask([order])
        assert isinstance(reply, Update)
        assert reply.noise > 0
        replies.append(reply.weights["parameters"].tobytes())
    assert replies[2:] == replies[1::-1]
    assert len({*replies}) == 2
    (refused,) = in_process(config, tmp_path).ask([three])
    assert isinstance(refused, Failure)
    assert refused.reason == Refusal.BUDGET.description
    assert "planned for 2 rounds, and they are used up" in caplog.text


def test_an_old_copy_of_a_vault_trains_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would have trained the same round again, with fresh noise."""
    config = replace(WHOLE, pretrain=PretrainConfig(epochs=0))
    data, vault = open_data(config), tmp_path / "clients" / "client-000"
    server = Server.of(
        config, data.aux, data.test, 10, data.clients, tmp_path / "cache"
    )
    state = initial_state(server)
    server.restore(state)
    site = in_process(config, tmp_path)
    for round_ in range(2):
        (reply,) = site.ask(
            [server.orders.train(replace(state, round=round_), "client-000")]
        )
        assert isinstance(reply, Update)
        if round_ == 0:
            shutil.copytree(vault, tmp_path / "copy")
    known_entries = state.with_accounts(
        ["client-000"], {"client-000": Account.from_json(reply.account)}
    )
    shutil.rmtree(vault)
    (tmp_path / "copy").rename(vault)
    (refused,) = site.ask(
        [server.orders.train(replace(known_entries, round=1), "client-000")]
    )
    assert refused == Failure(
        "client-000", Refusal.BUDGET.description, Refusal.BUDGET.value
    )
    assert (
        "has 1 entries, but the server has recorded 2, so this is an old copy"
        in caplog.text
    )


@pytest.mark.parametrize("change", [{"epochs": 20}, {"batch_size": 1}], ids=str)
def test_an_order_cannot_stretch_the_budget(
    change: dict[str, int], tmp_path: Path
) -> None:
    data = open_data(CONFIG)
    server = Server.of(
        CONFIG, data.aux, data.test, 10, data.clients, tmp_path / "cache"
    )
    state = initial_state(server)
    server.restore(state)
    (refused,) = in_process(CONFIG, tmp_path).ask(
        [replace(server.orders.train(state, "client-000"), **change)]
    )
    assert isinstance(refused, Failure)
    assert refused.reason == Refusal.ORDER.description
    assert not (tmp_path / "clients" / "client-000" / "account.jsonl").exists()


def test_seeded_training_promises_nothing(tmp_path: Path) -> None:
    config = replace(
        WHOLE,
        method="fedavg+p",
        rounds=1,
        privacy=replace(WHOLE.privacy, unsafe_seed=1),
    )
    one, two = (run(config, tmp_path / name, cache=tmp_path / "cache") for name in "ab")
    for label, arrays in one.state.weights.items():
        assert np.array_equal(
            arrays["parameters"], two.state.weights[label]["parameters"]
        )
    assert one.statement.startswith("NOT PRIVATE")
    assert "differentially private for" not in one.statement


def test_a_whole_network_without_batchnorm_trains_privately(tmp_path: Path) -> None:
    network = PrototypeSpec.of("cnn", width=4, features=8, norm="group")
    config = replace(WHOLE, head_only=False, rounds=1, prototypes=(network,))
    result = run(config, tmp_path / "run", cache=tmp_path / "cache")
    assert result.ledger.unprotected_models == 0
    assert all(
        result.ledger.epsilon(client) <= 1.05 for client in result.ledger.clients
    )
    before = open_data(config)  # the extractor has moved as well, not only the head
    fresh = initial_state(
        Server.of(
            config, before.aux, before.test, 10, before.clients, tmp_path / "cache"
        )
    )
    (label,) = fresh.weights
    moved = (
        result.state.weights[label]["parameters"] != fresh.weights[label]["parameters"]
    )
    assert moved.mean() > 0.9


def test_batchnorm_cannot_be_protected_and_says_what_to_do(tmp_path: Path) -> None:
    config = replace(
        CONFIG,
        head_only=False,
        prototypes=(PrototypeSpec.of("cnn", width=4, norm="batch"),),
    )
    with pytest.raises(
        UnsupportedModuleError,
        match="norm = 'group' in its prototype, or head_only = true",
    ):
        run(config, tmp_path / "run", cache=tmp_path / "cache")

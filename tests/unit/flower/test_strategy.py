"""A Flower app that exists already learns with FedAUX: its clients keep their budget,
and nobody can spoil a round.
"""

from collections.abc import Callable
from dataclasses import replace
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
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import SettingsError
from fedaux.flower import input_of
from fedaux.flower.release_strategy import NoReleaseError, QuestionMismatchError
from fedaux.flower.serialization import deserialize, serialize
from fedaux.messages import Release
from fedaux.privacy.module_validation import UnsupportedModuleError
from helpers.drop_in_app import (
    CLIENTS,
    make_app,
    make_grid,
    make_strategy,
    net,
    one_round,
    public,
    same,
    spoilt,
    train,
    values,
    warnings_of,
)

pytestmark = pytest.mark.usefixtures("known_entries")
OTHER = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))


def model(**change: Any) -> Callable[[Message, Message], Message]:
    """A reply with other arrays or metrics."""

    def spoil(reply: Message, message: Message) -> Message:
        arrays = {key: array.numpy() for key, array in reply.content["arrays"].items()}
        arrays.update(
            {
                key.replace("_", "."): value
                for key, value in change.items()
                if isinstance(value, np.ndarray)
            }
        )
        metrics = {"num-examples": 60, "loss": 1.0, **change.get("metrics", {})}
        record = ArrayRecord({key: Array(value) for key, value in arrays.items()})
        return Message(
            RecordDict({"arrays": record, "metrics": MetricRecord(metrics)}),
            reply_to=message,
        )

    return spoil


def test_a_round_is_fedavg_and_then_a_distillation(tmp_path: Path) -> None:
    strategy = make_strategy()
    student, metrics = one_round(strategy, make_grid(tmp_path))
    average, _ = one_round(FedAvg(fraction_evaluate=0.0), make_grid(tmp_path))
    assert sorted(strategy.releases) == ["2", "3", "4", "5"]
    assert not same(student, average)
    # it starts from the average
    assert all(torch.allclose(student[key], average[key], atol=0.1) for key in average)
    assert 1 < metrics["fedaux-teachers"] <= CLIENTS
    assert metrics["loss"] == pytest.approx(1.0)
    assert "(1, 1e-05)-differentially private" in strategy.privacy
    assert (
        "local models, their losses and training times are sent without"
        in strategy.privacy
    )


def test_each_teacher_is_loudest_on_rows_of_its_own_class(tmp_path: Path) -> None:
    """Else it would be FedDF: the releases are what tells who knows what."""
    strategy = make_strategy()
    one_round(strategy, make_grid(tmp_path, **{"fedaux-epsilon": 20.0}))
    found = strategy._embedding.teacher_weights(
        strategy.releases, sorted(strategy.releases)
    )
    kinds = strategy.server.public.distill.rows % 3
    for node in ("3", "4"):  # clients 1 and 2, alone with their class
        weights, own = found.of(node), int(node) - 2
        assert weights[kinds == own].mean() > 3 * weights[kinds != own].mean()


def told(change: dict[str, Any]) -> Callable[[Message, Message], Message]:
    def spoil(reply: Message, message: Message) -> Message:
        return Message(
            serialize(replace(deserialize(Release, reply.content), **change)),
            reply_to=message,
        )

    return spoil


HOSTILE = {
    "wrong size": told({"arrays": {"values": np.zeros(5, np.int64)}}),
    "too little noise": told({"scale": 1.0}),
    "no release": lambda reply, message: Message(
        RecordDict({"hello": ConfigRecord()}), reply_to=message
    ),
    "crashed": lambda reply, message: Message(Error(8, "killed"), reply_to=message),
    "no handler": lambda reply, message: Message(
        Error(2, "No query function registered"), reply_to=message
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_bad_release_costs_that_clients_score_only(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = make_strategy()
    _, metrics = one_round(
        strategy, make_grid(tmp_path, spoilt(3, "query.fedaux", HOSTILE[kind]))
    )
    assert sorted(strategy.releases) == ["2", "4", "5"]
    assert "node 3" in warnings_of(caplog)
    assert metrics["fedaux-teachers"] <= 3
    one_round(strategy, make_grid(tmp_path), 2)
    # asked again when it is next chosen, as by fedaux's own server
    assert "3" in strategy.releases


NONSENSE = {
    "not finite": model(**{"2_bias": np.full(3, np.nan, np.float32)}),
    "other shape": model(**{"2_bias": np.zeros(4, np.float32)}),
    "huge": model(**{"2_bias": np.full(3, 1e9, np.float32)}),
    "one array more": model(**{"3_bias": np.zeros(3, np.float32)}),
    "one metric more": model(metrics={"extra": 1.0}),
    "no records": model(metrics={"num-examples": 0}),
    "part of a record": model(metrics={"num-examples": 2.5}),
    "more records than are believed": model(metrics={"num-examples": 10**9}),
    "a list of records": model(metrics={"num-examples": [1, 2]}),
    "nothing": lambda reply, message: Message(RecordDict(), reply_to=message),
    "died": lambda reply, message: Message(
        Error(5, "node unavailable"), reply_to=message
    ),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_a_bad_model_costs_that_contribution_only(kind: str, tmp_path: Path) -> None:
    """The round is to the bit the one that it would have been without that client's
    model.
    """
    spoiling, without = make_strategy(), make_strategy()
    found, metrics = one_round(
        spoiling, make_grid(tmp_path, spoilt(3, "train", NONSENSE[kind]))
    )
    died, expected = one_round(
        without, make_grid(tmp_path, spoilt(3, "train", NONSENSE["died"]))
    )
    assert len(spoiling.releases) == CLIENTS
    assert same(found, died)
    assert dict(metrics) == dict(expected)


def test_an_update_that_goes_much_further_than_earlier_ones_did_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limits of fedaux's own server: known from the medians of earlier rounds."""
    strategy = make_strategy()
    far = model(**{"2_bias": np.full(3, 50.0, np.float32)})
    one_round(strategy, make_grid(tmp_path, spoilt(3, "train", far)))
    # the first round knows no limit
    assert "3" in strategy.state.history[0].client_metrics
    one_round(strategy, make_grid(tmp_path, spoilt(3, "train", far)), 2)
    assert sorted(strategy.state.history[1].client_metrics) == ["2", "4", "5"]
    assert "node 3 is left out of round 2: its parameters move by" in warnings_of(
        caplog
    )


def test_a_round_below_its_quorum_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()

    def handle(message: Message, context: Context) -> Message:
        gone = (
            message.metadata.message_type == "train"
            and message.metadata.dst_node_id > 2
        )
        return NONSENSE["died"](message, message) if gone else app(message, context)

    for share, counts in ((0.0, True), (0.25, True), (0.5, False)):
        strategy, grid = make_strategy(quorum=share), make_grid(tmp_path, handle)
        messages = strategy.configure_train(
            1, ArrayRecord(net().state_dict()), ConfigRecord(), grid
        )
        arrays, metrics = strategy.aggregate_train(1, grid.send_and_receive(messages))
        assert (arrays is not None) == (metrics is not None) == counts
        assert len(strategy.state.history) == counts
    assert "round 1 is lost: 1 of 4 models can be used" in warnings_of(caplog)


def test_more_records_than_are_believed_cost_the_contribution(tmp_path: Path) -> None:
    strategy = make_strategy(max_records=100)
    one_round(
        strategy,
        make_grid(tmp_path, spoilt(3, "train", model(metrics={"num-examples": 101}))),
    )
    assert sorted(strategy.state.history[0].client_metrics) == ["2", "4", "5"]


OPTIONS = [
    {"teacher_weights": "certainty"},
    {"max_share": 0.3},
    {"scorer": "logistic", "ridge": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_teachers_are_weighted_and_scored_as_in_a_run(
    options: dict[str, Any], tmp_path: Path
) -> None:
    strategy, usual = make_strategy(**options), make_strategy()
    scorer = {
        "scorer": options.get("scorer", "class-embedding"),
        "ridge": options.get("ridge", 0.01),
    }
    one_round(strategy, make_grid(tmp_path, make_app(unsafe_seed=1, **scorer)))
    one_round(usual, make_grid(tmp_path / "usual", make_app(unsafe_seed=1)))
    assert {release.scorer for release in strategy.releases.values()} == {
        scorer["scorer"]
    }
    found, other = (
        [
            metrics.teacher_share
            for metrics in each.state.history[0].client_metrics.values()
        ]
        for each in (strategy, usual)
    )
    assert found != other
    assert sum(found) == pytest.approx(1.0)
    assert max(found) <= options.get("max_share", 1.0) + 1e-9


def test_options_that_cannot_be_right_are_refused() -> None:
    for wrong in (
        {"teacher_weights": "loud"},
        {"max_share": 0.0},
        {"scorer": "psychic"},
        {"quorum": 2.0},
    ):
        with pytest.raises(ConfigError):
            make_strategy(**wrong)


def test_where_nobody_has_the_handler_the_run_ends(tmp_path: Path) -> None:
    """It went on as plain FedAvg, and ended with 0."""
    plain = ClientApp()
    plain.train()(train)
    strategy = make_strategy()
    with pytest.raises(NoReleaseError, match="none of 4 clients has made a release"):
        one_round(strategy, make_grid(tmp_path, plain))


def test_a_few_teachers_do_not_speak_for_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()

    def one_has_it(message: Message, context: Context) -> Message:
        if (
            message.metadata.message_type == "query.fedaux"
            and message.metadata.dst_node_id != 2
        ):
            raise ValueError("No query function registered with name 'fedaux'")
        return app(message, context)

    _, metrics = one_round(make_strategy(), make_grid(tmp_path, one_has_it))
    assert "fedaux-teachers" not in metrics
    assert "plain FedAvg: 1 of 4" in warnings_of(caplog)


def test_a_node_that_returns_under_a_new_id_counts_once(tmp_path: Path) -> None:
    strategy, grid = make_strategy(), make_grid(tmp_path)
    one_round(strategy, grid)
    grid._contexts[77] = grid._contexts.pop(3)
    one_round(strategy, grid, 2)
    assert sorted(strategy.releases) == ["2", "4", "5", "77"]


def test_what_was_kept_is_asked_again(tmp_path: Path) -> None:
    """Another start of the network, as an app without a seed has it, is no other
    question.
    """
    keep = tmp_path / "kept" / "question.safetensors"
    first, second = (
        make_strategy(model=net(1), keep=keep),
        make_strategy(model=net(2), keep=keep),
    )
    one_round(first, make_grid(tmp_path))
    one_round(second, make_grid(tmp_path))
    assert values(first) == values(second)
    with pytest.raises(
        QuestionMismatchError, match=r"of another model\. Name another file"
    ):
        make_strategy(model=OTHER, features=input_of("1"), keep=keep)


def test_a_second_run_without_seed_or_keep_asks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written in the README: the second `flwr run` was plain FedAvg, since every
    client refused.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    first, second = (
        make_strategy(model=net(1), keep="auto"),
        make_strategy(model=net(2), keep="auto"),
    )
    one_round(first, make_grid(tmp_path))
    _, metrics = one_round(second, make_grid(tmp_path))
    assert values(first) == values(second)
    assert "fedaux-teachers" in metrics
    assert len(list((tmp_path / ".fedaux").glob("question-*.safetensors"))) == 1
    # another question has a file of its own
    make_strategy(keep="auto", embedding_dim=2)
    assert len(list((tmp_path / ".fedaux").glob("question-*.safetensors"))) == 2


def test_settings_that_cannot_be_right_are_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        SettingsError, match="features = 'body' names nothing in Sequential"
    ):
        make_strategy(features="body")
    with pytest.raises(
        SettingsError,
        match=r"input_of\('fc'\) is not in Sequential, which has 0, 1, 2",
    ):
        make_strategy(features=input_of("fc"))
    with pytest.raises(SettingsError, match="classes = 10: Sequential gives"):
        make_strategy(classes=10)
    with pytest.raises(SettingsError, match="0 rows"):
        make_strategy(public=public()[:0])
    with pytest.raises(SettingsError, match="must be an absolute path"):
        make_app(vault="vault")
    with pytest.raises(SettingsError, match="private_training has no effect here"):
        make_app(epsilon_total=2.0, private_training=True)
    with pytest.raises(ConfigError, match="epsilon"):
        make_app(epsilon=0.0)
    strategy, grid = make_strategy(), make_grid(tmp_path)
    with pytest.raises(SettingsError, match="are not those of Sequential"):
        strategy.configure_train(
            1, ArrayRecord(OTHER.state_dict()), ConfigRecord(), grid
        )


def test_a_network_whose_rows_see_each_other_is_refused_on_both_sides(
    tmp_path: Path,
) -> None:
    def mixing(seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        norm = nn.BatchNorm1d(8, affine=False, track_running_stats=False)
        return nn.Sequential(
            nn.Linear(6, 8), nn.Sequential(norm, nn.ReLU()), nn.Linear(8, 3)
        )

    with pytest.raises(
        UnsupportedModuleError, match=r"1\.0: BatchNorm1d has no running statistics"
    ):
        make_strategy(model=mixing(), features=input_of("2"))
    # weights of the same shapes, which the client's network takes
    strategy = make_strategy()
    with pytest.raises(NoReleaseError):
        one_round(strategy, make_grid(tmp_path, make_app(model=mixing)))
    assert strategy.releases == {}
    honest = make_strategy()
    one_round(honest, make_grid(tmp_path / "honest"))
    assert len(honest.releases) == CLIENTS

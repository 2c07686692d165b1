"""Before the first round: what a method needs, and no more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.core.failures import Failure
from fedaux.core.progress import Notice, ProgressEvent, WorkProgress, report_to
from fedaux.core.timing import Costs
from fedaux.messages import PrepareOrder
from fedaux.models import flatten_state, load_state
from fedaux.models.networks import Columns, CosineMap
from fedaux.privacy.module_validation import UnsupportedModuleError
from fedaux.server.preparation import (
    collect_releases,
    initial_state,
    pretrain_extractor,
)
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from fedaux.server.traffic import CountedFederation
from helpers.scripted import CLIENTS, CONFIG, MLP, Scripted, fails, make_server


@pytest.mark.parametrize(
    ("method", "head_only", "extractors", "public"),
    [
        ("fedavg", False, 0, 0),
        ("feddf", True, 1, 0),
        ("fedaux", False, 1, 1),
        ("fedaux", True, 1, 1),
    ],
)
def test_the_state_holds_what_the_method_needs(
    method: str, head_only: bool, extractors: int, public: int
) -> None:
    state = initial_state(
        make_server(replace(CONFIG, method=method, head_only=head_only))
    )
    assert (len(state.weights), len(state.extractors), len(state.public)) == (
        1,
        extractors,
        public,
    )
    assert (state.round, state.history, state.releases) == (0, (), {})


def test_a_network_that_cannot_train_privately_is_refused_before_anybody_is_asked() -> (
    None
):
    privacy = replace(CONFIG.privacy, epsilon_total=2.0, private_training=True)
    with pytest.raises(UnsupportedModuleError):
        initial_state(make_server(replace(CONFIG, privacy=privacy)))


def test_only_methods_that_start_pretrained_pretrain(tmp_path: Path) -> None:
    """These records are rows of numbers, on which an mlp is not pre-trained: it is said where
    a method would.
    """
    config = replace(CONFIG, method="fedavg", pretrain=PretrainConfig(epochs=1))
    events: list[ProgressEvent] = []
    server = make_server(config, tmp_path)
    with report_to(events.append):
        initial_state(server)
    assert events == []
    assert list(tmp_path.iterdir()) == []
    with report_to(events.append):
        initial_state(make_server(replace(config, method="fedavg+p"), tmp_path))
    assert [event.text for event in events if isinstance(event, Notice)] == [
        f"{MLP.label} is not pre-trained: of the networks for rows of numbers, only "
        "tabular is"
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("method", "epochs"), [("fedavg", 1), ("fedaux", 1), ("fedaux", 0)]
)
def test_columns_are_scaled_once(
    method: str, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads all public rows."""
    fits: list[int] = []
    fit = Columns.fit

    def counted(self: Columns, rows: Any) -> None:
        fits.append(len(rows))
        fit(self, rows)

    monkeypatch.setattr(Columns, "fit", counted)
    config = replace(
        CONFIG,
        method=method,
        prototypes=(PrototypeSpec("linear"),),
        pretrain=PretrainConfig(epochs=epochs),
    )
    server = make_server(config)
    initial_state(server)
    assert fits == [len(server.public.aux)]


def test_cosines_are_as_wide_as_public_rows_are_apart() -> None:
    spec = PrototypeSpec("cosine")
    server = make_server(replace(CONFIG, prototypes=(spec,)))
    extractor = server.networks.extractors[spec.label]
    assert isinstance(extractor, CosineMap)
    before = float(extractor.cosines.distance)
    assert pretrain_extractor(server, spec) is None
    public = server.public.aux.gather()
    assert np.allclose(extractor.columns.mean, public.mean(axis=0), atol=1e-4)
    assert float(extractor.cosines.distance) != before


def test_published_weights_are_restored_instead_of_trained() -> None:
    server = make_server()
    extractor = server.networks.extractors[MLP.label]
    published = {
        name: array + array.dtype.type(1)
        for name, array in flatten_state(extractor).items()
    }
    events: list[ProgressEvent] = []

    extractor.published_weights = "somewhere"
    extractor.restore = lambda: load_state(extractor, published)
    with report_to(events.append):
        path = pretrain_extractor(server, MLP)
    assert path == Path("somewhere")
    assert np.array_equal(
        flatten_state(extractor)["parameters"], published["parameters"]
    )
    assert events == [
        WorkProgress(f"pre-training {MLP.label}", 1, 1, "published weights", "pretrain")
    ]


OWN = """
import torch
from torch import nn
from fedaux.models import Extractor
def network(shape):
    own = Extractor(nn.Flatten(), nn.Linear(4, 3), width=3)
    own[1].weight.data = torch.arange(12.0).reshape(3, 4)
    return own
"""


def test_plain_methods_refuse_to_start_from_a_users_own_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would be FedAvg+P under the name of FedAvg."""
    (tmp_path / "my_start.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    config = replace(
        CONFIG,
        prototypes=(PrototypeSpec("my_start:network"),),
        pretrain=PretrainConfig(epochs=0),
    )
    with pytest.raises(
        ConfigError,
        match=r"brings weights of its own, 1.weight .* Set method = 'fedavg\+p'",
    ):
        initial_state(make_server(replace(config, method="fedavg")))
    state = initial_state(make_server(replace(config, method="fedavg+p")))
    assert np.isin(
        np.arange(12.0), state.weights["my_start:network"]["parameters"]
    ).all()


def collected(
    federation: Scripted, server: Server, state: RunState
) -> tuple[RunState, list[Failure], Costs]:
    costs = Costs()
    counted = CountedFederation(federation, costs)
    return *collect_releases(server, counted, state, CLIENTS), costs


def test_those_who_answer_are_known_with_their_accounts() -> None:
    server, federation = make_server(), Scripted()
    state, failures, costs = collected(federation, server, initial_state(server))
    assert failures == []
    assert (
        set(state.releases)
        == set(state.accounts)
        == set(state.prepared)
        == set(CLIENTS)
    )
    assert state.known_entries("a") == (1, "")
    orders = federation.of_kind(PrepareOrder)
    size = sum(
        array.nbytes
        for arrays in (orders[0].extractor, orders[0].public)
        for array in arrays.values()
    )
    assert (costs.sent, costs.received) == (4 * size, 4 * 6 * 8)
    again = Scripted()
    assert collected(again, server, state)[0].releases == state.releases
    assert again.asked == []


def test_a_failure_says_that_there_is_no_score_and_is_remembered_as_unheard() -> None:
    server = make_server()
    script = {"b": fails(PrepareOrder), "c": lambda order: None}
    state, failures, _ = collected(Scripted(script), server, initial_state(server))
    assert failures == [Failure("b", "no score: out of order")]
    assert set(state.releases) == {"a", "d"}
    # their accounts may have an entry that nobody was told of
    assert state.awaiting_reply == {"b", "c"}
    assert collected(Scripted(), server, state)[0].awaiting_reply == set()

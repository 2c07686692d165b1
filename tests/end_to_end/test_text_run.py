"""Text from a .csv to a trained model: a BERT that is pre-trained and fine-tuned, and a
frozen published encoder.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import Config, run
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.failures import Failure, Refusal
from fedaux.core.progress import OrdersSent, ProgressEvent, WorkProgress
from fedaux.data.federated import open_data
from fedaux.messages import PrepareOrder
from fedaux.runs.runner import in_process
from fedaux.server.preparation import initial_state
from fedaux.server.server import Server
from helpers.tiny_text import publish_encoder, write_texts

pytest.importorskip("transformers", reason="text needs the extra fedaux[text]")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("text")
    encoder = publish_encoder(folder / "tiny", width=64)
    private, aux = (
        write_texts(folder / "private.csv", 400, seed=1),
        write_texts(folder / "aux.csv", 300, seed=2),
    )
    return Config.from_dict(
        {
            "rounds": 3,
            "head_only": True,
            "prototypes": [{"name": "encoder", "folder": str(encoder)}],
            "data": {"source": "csv", "path": str(private), "clients": 3, "alpha": 1.0},
            "aux": {"source": "csv", "path": str(aux), "options": {"label": ""}},
            "local": {"lr": 0.02, "epochs": 5},
            "distill": {"lr": 0.02, "epochs": 5},
            "privacy": {"epsilon": 4.0, "embedding_dim": 4, "unsafe_seed": 0},
        }
    )


def test_heads_on_a_published_encoder(config: Config, tmp_path: Path) -> None:
    result = run(config, tmp_path / "run", cache=tmp_path / "cache")
    assert result.accuracy > 0.7  # three topics
    assert not any(each.failures for each in result.state.history)


def test_a_published_encoder_does_not_travel(config: Config, tmp_path: Path) -> None:
    """Clients have it; what crosses is its hash, and a copy that differs in one bit is
    noticed.
    """
    data = open_data(config)
    server = Server.of(config, data.aux, data.test, 3, data.clients, tmp_path / "cache")
    state = initial_state(server)
    order = server.orders.prepare(state, "client-000")
    assert order.extractor == {}
    # without +P it starts at random, which nobody has
    for method, sent in (("fedavg+p", False), ("fedavg", True)):
        other = Server.of(
            replace(config, method=method),
            data.aux,
            data.test,
            3,
            data.clients,
            tmp_path / "cache",
        )
        fresh = initial_state(other)
        other.restore(fresh)
        assert bool(other.orders.train(fresh, "client-000").extractor) == sent
    site = in_process(config, tmp_path)
    (refused,) = site.ask([replace(order, h0=order.h0[::-1])])
    assert isinstance(refused, Failure)
    assert not list(tmp_path.rglob("release-*.json"))


def test_a_folder_that_the_clients_own_settings_do_not_name_is_not_read(
    config: Config, tmp_path: Path
) -> None:
    site = in_process(config, tmp_path)
    foreign = PrototypeSpec.of(
        "encoder", folder=str(publish_encoder(tmp_path / "other"))
    ).to_json()
    public = {"mean": np.zeros(16, np.float32), "basis": np.zeros((16, 4), np.float32)}
    (refused,) = site.ask(
        [
            PrepareOrder(
                "client-000", foreign, "class-embedding", 3, 15, "x", 0, {}, public
            )
        ]
    )
    assert isinstance(refused, Failure)
    assert refused.reason == Refusal.ORDER.description


def test_a_bert_is_pretrained_and_fine_tuned(config: Config, tmp_path: Path) -> None:
    tokenizer = dict(config.prototypes[0].options)["folder"]
    bert = PrototypeSpec.of(
        "bert", layers=1, width=16, heads=2, inner=32, tokenizer=str(tokenizer)
    )
    whole = replace(
        config,
        head_only=False,
        rounds=2,
        prototypes=(bert,),
        pretrain=replace(config.pretrain, epochs=3, batch_size=50, lr=1e-2),
        local=replace(config.local, lr=5e-3),
        distill=replace(config.distill, lr=5e-3),
    )
    events: list[ProgressEvent] = []
    result = run(
        whole, tmp_path / "run", cache=tmp_path / "cache", on_progress=events.append
    )
    assert result.accuracy > 0.6
    epochs = [
        event
        for event in events
        if isinstance(event, WorkProgress) and event.phase == "pretrain"
    ]
    assert [event.done for event in epochs] == [1, 2, 3]
    assert all(
        event.task.startswith("pre-training bert") and "loss" in event.note
        for event in epochs
    )
    assert not any(each.failures for each in result.state.history)


def test_what_is_sent_is_said(config: Config, tmp_path: Path) -> None:
    tokenizer = str(dict(config.prototypes[0].options)["folder"])
    bert = PrototypeSpec.of(
        "bert", layers=1, width=16, heads=2, inner=32, tokenizer=tokenizer
    )
    events: list[ProgressEvent] = []
    for name, spec in (("published", config.prototypes[0]), ("own", bert)):
        once = replace(
            config,
            rounds=1,
            prototypes=(spec,),
            pretrain=replace(config.pretrain, epochs=0),
        )
        run(once, tmp_path / name, cache=tmp_path / "cache", on_progress=events.append)
    published, own = (
        event
        for event in events
        if isinstance(event, OrdersSent) and event.task == "release"
    )
    # the public maps alone, and three extractors more
    assert 0 < published.bytes < own.bytes - 3 * 1000

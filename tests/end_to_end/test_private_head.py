"""The private head, as a method and as a start: good before anybody has trained, at the
budget of one release.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import fedaux
from fedaux import run
from fedaux.cli.run import show_run
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.federated import open_data
from fedaux.export.export import export_model
from fedaux.export.model import read_card
from fedaux.report.run_page import write_run_report
from fedaux.runs.runner import in_process
from fedaux.server.analytic_round import private_heads
from fedaux.server.networks import evaluations
from fedaux.server.preparation import collect_releases, initial_state
from fedaux.server.server import Server

CONFIG = replace(
    DEMO,
    rounds=1,
    prototypes=(PrototypeSpec.of("cnn", width=8, features=32),),
    head_init="private-head",
    pretrain=replace(DEMO.pretrain, epochs=1),
    distill=replace(DEMO.distill, epochs=1),
)


@pytest.mark.parametrize("linear", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_heads_know_something_before_the_first_round(
    linear: bool, tmp_path: Path
) -> None:
    config = replace(CONFIG, head_only=linear)
    data = open_data(config)
    server = Server.of(
        config, data.aux, data.test, 10, data.clients, tmp_path / "cache"
    )
    state = initial_state(server)
    embedding = server.restore(state)
    assert embedding is not None
    state, failures = collect_releases(
        server, in_process(config, tmp_path), state, data.clients
    )
    assert not failures
    started = private_heads(server, state, embedding)
    tests = [
        evaluations(server.networks, one.weights, server.public.test_inputs, 10)
        for one in (state, started)
    ]
    before, after = (next(iter(one.values())).accuracy for one in tests)
    assert before < 0.3
    assert after > 0.4
    assert started.releases.keys() == state.releases.keys()


def test_a_run_that_starts_so_costs_what_the_other_costs(tmp_path: Path) -> None:
    started = run(CONFIG, tmp_path / "a", cache=tmp_path / "cache")
    plain = run(
        replace(CONFIG, head_init="random"), tmp_path / "b", cache=tmp_path / "cache"
    )
    assert {c: started.ledger.epsilon(c) for c in started.ledger.clients} == {
        c: plain.ledger.epsilon(c) for c in plain.ledger.clients
    }
    assert len(list((tmp_path / "a").rglob("release-*.json"))) == 10


def test_as_a_method_it_is_one_exchange_and_says_which_classes_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "clients": 4,
        "pretrain": {"epochs": 0},
        "expected_records": 700,
        "model": "cnn",
        "cache": tmp_path,
    }
    good = fedaux.run(
        "private-head", folder=tmp_path / "good", epsilon=10.0, **settings
    )
    assert good.state.round == 1
    assert good.accuracy > 0.6
    assert good.unknown_classes == []
    assert good.privacy.epsilon == pytest.approx(10.0, rel=1e-3)
    assert good.ledger.to_dict()["weights_covered"]
    drowned = fedaux.run(
        "private-head", folder=tmp_path / "drowned", epsilon=0.01, **settings
    )
    assert len(drowned.unknown_classes) >= 8
    assert "about" in drowned.unknown_classes[0]
    (folder,) = export_model(drowned.folder, tmp_path / "model")
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert f"**It knows nothing of {drowned.unknown_classes[0]}" in page
    assert read_card(folder)["metrics"]["unknown_classes"] == drowned.unknown_classes
    report = write_run_report(drowned.folder).read_text(encoding="utf-8")
    assert f"The head knows nothing of {drowned.unknown_classes[0]}" in report
    show_run(drowned, Console(), as_json=False)
    assert "The head knows nothing of" in capsys.readouterr().out

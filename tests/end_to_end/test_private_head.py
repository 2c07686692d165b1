"""head_init = "private-head": heads from the first releases, good before anybody has trained, at no further budget."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedaux import run
from fedaux.config.presets import DEMO
from fedaux.core.timing import Costs
from fedaux.data.federated import open_data
from fedaux.runs.runner import in_process
from fedaux.server.analytic_round import private_heads
from fedaux.server.networks import evaluations
from fedaux.server.preparation import collect_releases, initial_state
from fedaux.server.server import Server

CONFIG = replace(DEMO, rounds=1, head_init="private-head", pretrain=replace(DEMO.pretrain, epochs=3))


@pytest.mark.parametrize("linear", [True, False])
def test_heads_know_something_before_the_first_round(linear: bool, tmp_path: Path) -> None:
    config = replace(CONFIG, head_only=linear)
    data = open_data(config)
    server = Server.of(config, data.aux, data.test, 10, data.clients, tmp_path / "cache")
    state = initial_state(server)
    embedding = server.restore(state)
    assert embedding is not None
    state, failures = collect_releases(server, in_process(config, tmp_path), state, data.clients, Costs())
    assert not failures
    started = private_heads(server, state, embedding)
    tests = [evaluations(server.networks, one.weights, server.public.test_inputs, 10) for one in (state, started)]
    before, after = (next(iter(one.values())).accuracy for one in tests)
    assert before < 0.3
    assert after > 0.55
    assert started.releases.keys() == state.releases.keys()


def test_a_run_that_starts_so_costs_what_the_other_costs(tmp_path: Path) -> None:
    started = run(CONFIG, tmp_path / "a", cache=tmp_path / "cache")
    plain = run(replace(CONFIG, head_init="random"), tmp_path / "b", cache=tmp_path / "cache")
    assert {c: started.ledger.epsilon(c) for c in started.ledger.clients} == {
        c: plain.ledger.epsilon(c) for c in plain.ledger.clients
    }
    assert len(list((tmp_path / "a").rglob("release-*.json"))) == 10

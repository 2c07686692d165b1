"""Methods with hooks in whole runs: stopped and lost rounds, lost replies, private
training, all with client state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from fedaux.client.kept_state import ClientState
from fedaux.core.failures import Failure
from fedaux.messages import Federation, Order, Reply, Update
from fedaux.runs.folders import stored_state
from fedaux.runs.runner import in_process
from fedaux.runs.session import run_in_folder
from fedaux.server.loop import QuorumError
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server
from helpers.oracle import SIZES, Naive, Problem, parameters

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own-method"

Loses = Callable[[Update], bool]


class Lossy:
    """Clients that work, and whose replies do not all arrive."""

    def __init__(self, inner: Federation, loses: Loses) -> None:
        self.inner, self.loses = inner, loses

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for reply in self.inner.ask(orders):
            lost = isinstance(reply, Update) and self.loses(reply)
            yield Failure(reply.client, "lost on its way") if lost else reply


def go_on(
    problem: Problem, config: Config, folder: Path, loses: Loses = lambda update: False
) -> RunState:
    """Start or resume a run in a folder, as `fedaux run` does."""
    server = make_server(config, cache=problem.folder / "cache")
    federation = Lossy(in_process(problem.site(config), folder), loses)
    return run_in_folder(folder, server, federation, stored_state(config, folder)).state


@pytest.mark.parametrize("method", ["scaffold", "fedavgm"])
def test_a_stopped_run_and_a_lost_round_end_in_the_same_bits(
    tmp_path: Path, method: str
) -> None:
    problem = Problem.at(tmp_path)
    config = problem.config(method)
    undisturbed = go_on(problem, config, tmp_path / "undisturbed")
    folder = tmp_path / "disturbed"
    go_on(problem, replace(config, rounds=2), folder)  # stopped after two rounds
    # clients train for the third, and keep what they learned; nobody hears of it
    for _ in range(2):
        with pytest.raises(QuorumError):
            go_on(problem, config, folder, lambda update: update.round == 3)
    resumed = go_on(problem, config, folder)
    assert resumed.round == 4
    assert np.array_equal(parameters(undisturbed), parameters(resumed))
    for label, kept in undisturbed.method_state.items():
        assert all(
            np.array_equal(array, resumed.method_state[label][name])
            for name, array in kept.items()
        )


def test_control_variates_stay_in_step_when_replies_are_lost(tmp_path: Path) -> None:
    """c is the mean of the c_i that the server has heard of; a client whose reply was
    lost goes back to that one.
    """
    problem = Problem.at(tmp_path)
    config = replace(problem.config("scaffold"), rounds=8)
    folder = tmp_path / "run"
    state = go_on(
        problem,
        config,
        folder,
        lambda update: (
            (len(update.client) + update.round + ord(update.client)) % 3 == 0
        ),
    )
    assert sum(len(result.failures) for result in state.history) >= 3
    (kept,) = state.method_state.values()
    own = {}
    for client in SIZES:
        states = ClientState(
            folder / "clients" / client, client, config.run_id, "plain"
        )
        own[client] = states.load(state.last_round.get(client, 0)).get(
            "c", np.zeros_like(kept["c"])
        )
    assert sum(bool(array.any()) for array in own.values()) >= 4
    assert np.allclose(kept["c"], sum(own.values()) / len(SIZES), atol=1e-6)


def test_a_method_of_ones_own_against_its_equations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedExP of examples/own-method, its step size written out."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    problem, epsilon = Problem.at(tmp_path), 0.01
    config = problem.config("fedexp:method", epsilon=epsilon)
    naive, rates = Naive(problem, config), []
    theta = naive.start
    for round_ in naive.rounds:
        moves = [
            naive.train(theta, client, round_)[0] - theta
            for client in naive.sampled(round_)
        ]
        mean = sum(moves) / len(moves)
        squares = sum(np.linalg.norm(move) ** 2 for move in moves)
        rates.append(
            max(1.0, squares / (2 * len(moves) * (np.linalg.norm(mean) ** 2 + epsilon)))
        )
        theta = theta + rates[-1] * mean
    assert max(rates) > 1.1  # else it would be FedAvg
    assert np.allclose(parameters(problem.run(config)), theta, rtol=0, atol=2e-6)


PRIVATE = {
    "rounds": 2,
    "head_only": True,
    "prototypes": [{"name": "mlp", "hidden": 8, "features": 4}],
    "data": {"clients": 3, "alpha": 1.0},
    "aux": {"fraction": 0.9, "limit": 200},  # few private records
    "pretrain": {"epochs": 0},
    "local": {"optimizer": "sgd", "momentum": 0.5, "lr": 0.1, "batch_size": 64},
    "privacy": {
        "private_training": True,
        "epsilon_total": 8.0,
        "sample_rate": 1.0,  # whose noise needs no search
    },
}


@pytest.mark.parametrize(
    "method",
    [
        "scaffold",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("fednova", "fedadam")
        ),
    ],
)
def test_private_training_stays_private_under_any_method(
    tmp_path: Path, method: str
) -> None:
    result = run(
        Config.from_dict({**PRIVATE, "method": method}),
        tmp_path / "run",
        cache=tmp_path / "cache",
    )
    assert (
        "The local models of this run are (8, 1e-05)-differentially private"
        in result.statement
    )
    assert not result.state.history[-1].failures

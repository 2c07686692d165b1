"""SCAFFOLD against algorithm 1 of its paper, option II, written out."""

from pathlib import Path

import numpy as np
import pytest

from helpers.oracle import Naive, Problem, parameters


@pytest.mark.parametrize(("server_lr", "momentum"), [(1.0, 0.0), (0.5, 0.0), (1.0, 0.5)])
def test_control_variates_both_ways(tmp_path: Path, server_lr: float, momentum: float) -> None:
    problem = Problem.at(tmp_path)
    config = problem.config("scaffold", {"momentum": momentum}, server_lr=server_lr)
    naive = Naive(problem, config)
    theta, c = naive.start, np.zeros_like(naive.start)
    own = {client: np.zeros_like(theta) for client in naive.records}
    for round_ in naive.rounds:
        moves, changes = [], []
        for client in naive.sampled(round_):
            correction = c - own[client]
            trained, steps = naive.train(theta, client, round_, lambda _, fixed=correction: fixed)
            k = sum((1 - momentum**j) / (1 - momentum) for j in range(1, steps + 1))  # the number of steps without it
            new = own[client] - c + (theta - trained) / (k * config.local.lr)
            moves.append(trained - theta)
            changes.append(new - own[client])
            own[client] = new
        theta = theta + server_lr * np.mean(moves, axis=0)
        c = c + len(changes) / len(own) * np.mean(changes, axis=0)
    state = problem.run(config)
    assert np.allclose(parameters(state), theta, rtol=0, atol=2e-6)
    assert np.allclose(next(iter(state.method_state.values()))["c"], c, rtol=0, atol=2e-6)
    assert np.allclose(c, np.mean(list(own.values()), axis=0))  # what c is meant to be

"""FedAvgM against its equations, written out."""

from pathlib import Path

import numpy as np
import pytest

from helpers.oracle import Naive, Problem, parameters


@pytest.mark.parametrize(("beta", "server_lr"), [(0.9, 1.0), (0.5, 0.3)])
def test_momentum_at_the_server(tmp_path: Path, beta: float, server_lr: float) -> None:
    problem = Problem.at(tmp_path)
    config = problem.config("fedavgm", beta=beta, server_lr=server_lr)
    naive = Naive(problem, config)
    theta, v = naive.start, np.zeros_like(naive.start)
    for round_ in naive.rounds:
        shares = naive.sampled(round_)
        delta = sum(share * (theta - naive.train(theta, client, round_)[0]) for client, share in shares.items())
        v = beta * v + delta
        theta = theta - server_lr * v
    state = problem.run(config)
    assert np.allclose(parameters(state), theta, rtol=0, atol=1e-6)
    assert np.allclose(next(iter(state.method_state.values()))["v"], v, rtol=0, atol=1e-6)


def test_without_momentum_it_is_fedavg_and_with_it_not(tmp_path: Path) -> None:
    problem = Problem.at(tmp_path)
    fedavg = parameters(problem.run(problem.config("fedavg")))
    assert np.allclose(parameters(problem.run(problem.config("fedavgm", beta=0.0))), fedavg, rtol=0, atol=1e-6)
    assert not np.allclose(parameters(problem.run(problem.config("fedavgm", beta=0.9))), fedavg, atol=1e-3)

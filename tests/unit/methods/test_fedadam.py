"""FedAdam and FedYogi against their equations, written out."""

from pathlib import Path

import numpy as np
import pytest

from helpers.oracle import Naive, Problem, parameters


@pytest.mark.parametrize("method", ["fedadam", "fedyogi"])
def test_adaptive_steps_at_the_server(tmp_path: Path, method: str) -> None:
    eta, beta1, beta2, tau = 0.05, 0.8, 0.9, 0.01
    problem = Problem.at(tmp_path)
    config = problem.config(method, server_lr=eta, beta1=beta1, beta2=beta2, tau=tau)
    naive = Naive(problem, config)
    theta, m, v = naive.start, np.zeros_like(naive.start), np.full_like(naive.start, tau**2)
    for round_ in naive.rounds:
        shares = naive.sampled(round_)
        delta = sum(share * (naive.train(theta, client, round_)[0] - theta) for client, share in shares.items())
        m = beta1 * m + (1 - beta1) * delta
        if method == "fedadam":
            v = beta2 * v + (1 - beta2) * delta**2
        else:
            v = np.array([a - (1 - beta2) * d * d * np.sign(a - d * d) for a, d in zip(v, delta, strict=True)])
        theta = theta + eta * m / (np.sqrt(v) + tau)
    assert np.allclose(parameters(problem.run(config)), theta, rtol=0, atol=2e-6)


def test_the_two_differ(tmp_path: Path) -> None:
    problem = Problem.at(tmp_path)
    one, two = (parameters(problem.run(problem.config(name, beta2=0.5))) for name in ("fedadam", "fedyogi"))
    assert not np.allclose(one, two, atol=1e-4)

"""FedNova against its equations, written out."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux.methods.fednova import accumulated
from fedaux.methods.hooks import LocalWork
from helpers.oracle import Naive, Problem, parameters


@pytest.mark.parametrize(("momentum", "tolerance"), [(0.0, 2e-6), (0.9, 2e-5)])
def test_averages_of_normalised_updates(tmp_path: Path, momentum: float, tolerance: float) -> None:
    """What clients send is rounded to float32 and then multiplied by τ, which is 150 with this momentum."""
    problem, local = Problem.at(tmp_path), {"momentum": momentum, "weight_decay": 0.01, "lr": 0.01}
    config = problem.config("fednova", local)
    naive = Naive(problem, config)
    theta = naive.start
    for round_ in naive.rounds:
        tau, direction = 0.0, np.zeros_like(theta)
        for client, share in naive.sampled(round_).items():
            trained, steps = naive.train(theta, client, round_)
            a = sum((1 - momentum**k) / (1 - momentum) for k in range(1, steps + 1))  # ‖a_i‖₁ of the paper
            tau += share * a
            direction += share * (theta - trained) / a
        theta = theta - tau * direction
    assert np.allclose(parameters(problem.run(config)), theta, rtol=0, atol=tolerance)
    assert not np.allclose(parameters(problem.run(problem.config("fedavg", local))), theta, atol=1e-3)


def moved(work: LocalWork) -> float:
    """How far torch's own optimiser goes along a gradient of 1, in steps of lr, with FedPROX's pull to the start."""
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    descent = torch.optim.SGD([x], work.lr, work.momentum)
    for _ in range(work.steps):
        descent.zero_grad()
        (x.sum() + work.mu / 2 * x.square().sum()).backward()  # type: ignore[no-untyped-call]
        descent.step()
    return -x.item() / work.lr


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("steps", [1, 2, 37])
def test_how_often_gradients_count(momentum: float, mu: float, steps: int) -> None:
    work = LocalWork(steps, 0.1, "sgd", momentum, mu)
    assert accumulated(work) == pytest.approx(moved(work), rel=1e-12)


def test_the_two_closed_forms_of_the_paper() -> None:
    rho, alpha, steps = 0.9, 0.05, 12
    momentum = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
    assert accumulated(LocalWork(steps, 0.1, "sgd", rho, 0.0)) == pytest.approx(momentum)
    proximal = sum((1 - alpha) ** k for k in range(steps))
    assert accumulated(LocalWork(steps, 0.1, "sgd", 0.0, alpha / 0.1)) == pytest.approx(proximal)


def test_with_adam_steps_are_counted() -> None:
    assert accumulated(LocalWork(7, 0.1, "adam", 0.0, 3.0)) == 7.0

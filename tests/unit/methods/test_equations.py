"""Methods with hooks against the equations of their papers, written out."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.methods.fednova import accumulated
from fedaux.methods.hooks import LocalWork
from helpers.oracle import Naive, Problem, parameters


@pytest.mark.parametrize(("beta", "server_lr"), [(0.9, 1.0), (0.5, 0.3)])
def test_momentum_at_the_server(tmp_path: Path, beta: float, server_lr: float) -> None:
    problem = Problem.at(tmp_path)
    config = problem.config("fedavgm", beta=beta, server_lr=server_lr)
    naive = Naive(problem, config)
    theta, v = naive.start, np.zeros_like(naive.start)
    for round_ in naive.rounds:
        shares = naive.sampled(round_)
        delta = sum(
            share * (theta - naive.train(theta, client, round_)[0])
            for client, share in shares.items()
        )
        v = beta * v + delta
        theta = theta - server_lr * v
    state = problem.run(config)
    assert np.allclose(parameters(state), theta, rtol=0, atol=1e-6)
    assert np.allclose(
        next(iter(state.method_state.values()))["v"], v, rtol=0, atol=1e-6
    )


def test_without_momentum_it_is_fedavg_and_with_it_not(tmp_path: Path) -> None:
    problem = Problem.at(tmp_path)
    fedavg = parameters(problem.run(problem.config("fedavg")))
    assert np.allclose(
        parameters(problem.run(problem.config("fedavgm", beta=0.0))),
        fedavg,
        rtol=0,
        atol=1e-6,
    )
    assert not np.allclose(
        parameters(problem.run(problem.config("fedavgm", beta=0.9))), fedavg, atol=1e-3
    )


@pytest.mark.parametrize("method", ["fedadam", "fedyogi"])
def test_adaptive_steps_at_the_server(tmp_path: Path, method: str) -> None:
    eta, beta1, beta2, tau = 0.05, 0.8, 0.9, 0.01
    problem = Problem.at(tmp_path)
    config = problem.config(method, server_lr=eta, beta1=beta1, beta2=beta2, tau=tau)
    naive = Naive(problem, config)
    theta, m, v = (
        naive.start,
        np.zeros_like(naive.start),
        np.full_like(naive.start, tau**2),
    )
    for round_ in naive.rounds:
        shares = naive.sampled(round_)
        delta = sum(
            share * (naive.train(theta, client, round_)[0] - theta)
            for client, share in shares.items()
        )
        m = beta1 * m + (1 - beta1) * delta
        if method == "fedadam":
            v = beta2 * v + (1 - beta2) * delta**2
        else:
            v = np.array(
                [
                    a - (1 - beta2) * d * d * np.sign(a - d * d)
                    for a, d in zip(v, delta, strict=True)
                ]
            )
        theta = theta + eta * m / (np.sqrt(v) + tau)
    assert np.allclose(parameters(problem.run(config)), theta, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("momentum", "tolerance"), [(0.0, 2e-6), (0.9, 2e-5)])
def test_averages_of_normalised_updates(
    tmp_path: Path, momentum: float, tolerance: float
) -> None:
    """What clients send is rounded to float32 and then multiplied by τ, which is 150
    with this momentum.
    """
    problem, local = (
        Problem.at(tmp_path),
        {"momentum": momentum, "weight_decay": 0.01, "lr": 0.01},
    )
    config = problem.config("fednova", local)
    naive = Naive(problem, config)
    theta = naive.start
    for round_ in naive.rounds:
        tau, direction = 0.0, np.zeros_like(theta)
        for client, share in naive.sampled(round_).items():
            trained, steps = naive.train(theta, client, round_)
            # ‖a_i‖₁ of the paper
            a = sum((1 - momentum**k) / (1 - momentum) for k in range(1, steps + 1))
            tau += share * a
            direction += share * (theta - trained) / a
        theta = theta - tau * direction
    assert np.allclose(parameters(problem.run(config)), theta, rtol=0, atol=tolerance)
    assert not np.allclose(
        parameters(problem.run(problem.config("fedavg", local))), theta, atol=1e-3
    )


def moved(work: LocalWork) -> float:
    """How far torch's own optimiser goes along a gradient of 1, in steps of lr, with
    FedProx's pull to the start.
    """
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
    assert accumulated(LocalWork(steps, 0.1, "sgd", rho, 0.0)) == pytest.approx(
        momentum
    )
    proximal = sum((1 - alpha) ** k for k in range(steps))
    assert accumulated(LocalWork(steps, 0.1, "sgd", 0.0, alpha / 0.1)) == pytest.approx(
        proximal
    )


def test_with_adam_steps_are_counted() -> None:
    assert accumulated(LocalWork(7, 0.1, "adam", 0.0, 3.0)) == 7.0


@pytest.mark.parametrize(
    ("server_lr", "momentum"), [(1.0, 0.0), (0.5, 0.0), (1.0, 0.5)]
)
def test_control_variates_both_ways(
    tmp_path: Path, server_lr: float, momentum: float
) -> None:
    problem = Problem.at(tmp_path)
    config = problem.config("scaffold", {"momentum": momentum}, server_lr=server_lr)
    naive = Naive(problem, config)
    theta, c = naive.start, np.zeros_like(naive.start)
    own = {client: np.zeros_like(theta) for client in naive.records}
    for round_ in naive.rounds:
        moves, changes = [], []
        for client in naive.sampled(round_):
            correction = c - own[client]
            trained, steps = naive.train(
                theta, client, round_, lambda _, fixed=correction: fixed
            )
            # the number of steps without it
            k = sum((1 - momentum**j) / (1 - momentum) for j in range(1, steps + 1))
            new = own[client] - c + (theta - trained) / (k * config.local.lr)
            moves.append(trained - theta)
            changes.append(new - own[client])
            own[client] = new
        theta = theta + server_lr * np.mean(moves, axis=0)
        c = c + len(changes) / len(own) * np.mean(changes, axis=0)
    state = problem.run(config)
    assert np.allclose(parameters(state), theta, rtol=0, atol=2e-6)
    assert np.allclose(
        next(iter(state.method_state.values()))["c"], c, rtol=0, atol=2e-6
    )
    assert np.allclose(c, np.mean(list(own.values()), axis=0))  # what c is meant to be


@pytest.mark.parametrize(("alpha", "momentum"), [(0.2, 0.0), (0.02, 0.5)])
def test_dynamic_regularisation(tmp_path: Path, alpha: float, momentum: float) -> None:
    """A client that is asked again in round 3 or 4 has the g_i that it ended with; one
    that is new has none.
    """
    problem = Problem.at(tmp_path)
    config = problem.config("feddyn", {"momentum": momentum}, alpha=alpha)
    naive = Naive(problem, config)
    theta, h = naive.start, np.zeros_like(naive.start)
    g = {client: np.zeros_like(theta) for client in naive.records}
    for round_ in naive.rounds:
        models = []
        for client in naive.sampled(round_):
            term = partial(
                lambda start, own, point: alpha * (point - start) - own,
                theta,
                g[client],
            )
            models.append(naive.train(theta, client, round_, term)[0])
            g[client] = g[client] - alpha * (models[-1] - theta)
        h = h - alpha / len(g) * sum(model - theta for model in models)
        theta = np.mean(models, axis=0) - h / alpha
    state = problem.run(config)
    assert np.allclose(parameters(state), theta, rtol=0, atol=5e-6)
    assert np.allclose(
        next(iter(state.method_state.values()))["h"], h, rtol=0, atol=5e-6
    )
    assert np.allclose(h, np.mean(list(g.values()), axis=0))  # what h is meant to be


def test_alpha_is_positive_and_models_are_sent_in_full() -> None:
    with pytest.raises(ConfigError, match=r"method_options\.alpha must be above 0"):
        Config.from_dict({"method": "feddyn", "method_options": {"alpha": 0.0}})
    with pytest.raises(ConfigError, match="half precision: it drowns"):
        Config.from_dict({"method": "feddyn", "federation": {"precision": "float16"}})

"""FedDyn against algorithm 1 of its paper, written out."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from helpers.oracle import Naive, Problem, parameters


@pytest.mark.parametrize(("alpha", "momentum"), [(0.2, 0.0), (0.02, 0.5)])
def test_dynamic_regularisation(tmp_path: Path, alpha: float, momentum: float) -> None:
    """A client that is asked again in round 3 or 4 has the g_i that it ended with; one that is new has none."""
    problem = Problem.at(tmp_path)
    config = problem.config("feddyn", {"momentum": momentum}, alpha=alpha)
    naive = Naive(problem, config)
    theta, h = naive.start, np.zeros_like(naive.start)
    g = {client: np.zeros_like(theta) for client in naive.records}
    for round_ in naive.rounds:
        models = []
        for client in naive.sampled(round_):
            term = partial(lambda start, own, point: alpha * (point - start) - own, theta, g[client])
            models.append(naive.train(theta, client, round_, term)[0])
            g[client] = g[client] - alpha * (models[-1] - theta)
        h = h - alpha / len(g) * sum(model - theta for model in models)
        theta = np.mean(models, axis=0) - h / alpha
    state = problem.run(config)
    assert np.allclose(parameters(state), theta, rtol=0, atol=5e-6)
    assert np.allclose(next(iter(state.method_state.values()))["h"], h, rtol=0, atol=5e-6)
    assert np.allclose(h, np.mean(list(g.values()), axis=0))  # what h is meant to be


def test_alpha_is_positive_and_models_are_sent_in_full() -> None:
    with pytest.raises(ConfigError, match=r"method_options\.alpha must be above 0"):
        Config.from_dict({"method": "feddyn", "method_options": {"alpha": 0.0}})
    with pytest.raises(ConfigError, match="half precision drowns"):
        Config.from_dict({"method": "feddyn", "federation": {"precision": "float16"}})

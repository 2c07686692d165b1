"""The hooks as they come are FedAvg; what a method sends beside a model travels with
it.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from fedaux.config.methods import METHODS, PAPER_METHODS
from fedaux.core.arrays import Arrays
from fedaux.methods.hooks import (
    Hooks,
    LocalWork,
    ModelVector,
    hooks_of,
    next_model,
    with_extra,
    without_extra,
)

MODEL = {
    "parameters": np.arange(3, dtype=np.float32),
    "buffers": np.ones(2, np.float32),
    "counters": np.array([4]),
}
WORK = LocalWork(5, 0.1, "sgd", 0.0, 0.0)


def test_as_they_come_they_are_fedavg() -> None:
    hooks, theta = Hooks(), MODEL["parameters"]
    sent = hooks.client_update(theta, 2 * theta, WORK, {}, {})
    assert (sent.extra, sent.state, hooks.server_state(theta), hooks.broadcast({})) == (
        {},
        {},
        {},
        {},
    )
    assert np.array_equal(sent.parameters, 2 * theta)
    weights, state = next_model(
        hooks, MODEL, {}, {**MODEL, "parameters": 2 * theta}, 0.5
    )
    assert np.array_equal(weights["parameters"], 2 * theta)
    assert state == {}


def test_extra_arrays_come_back_as_they_went() -> None:
    extra = {"parameters": np.zeros(1), "c": np.ones(3)}
    weights, again = without_extra(with_extra(MODEL, extra))
    assert weights.keys() == MODEL.keys()
    assert again.keys() == extra.keys()
    assert all(again[name] is extra[name] for name in extra)


def test_running_statistics_are_those_of_the_mean_whatever_the_method_does() -> None:
    @dataclass(frozen=True)
    class Doubled(Hooks):
        def server_step(
            self,
            theta: ModelVector,
            mean: ModelVector,
            extra: Arrays,
            fraction: float,
            state: Arrays,
        ) -> tuple[ModelVector, Arrays]:
            return 2.0 * mean.astype(np.float64), {
                "fraction": np.array(fraction),
                **extra,
            }

    weights, state = next_model(
        Doubled(), MODEL, {}, with_extra(MODEL, {"c": np.ones(1)}), 0.25
    )
    assert weights["parameters"].tolist() == [0, 2, 4]
    assert weights["parameters"].dtype == np.float32
    assert weights["buffers"] is MODEL["buffers"]
    assert weights.keys() == MODEL.keys()
    assert (float(state["fraction"]), state["c"].tolist()) == (0.25, [1.0])


@pytest.mark.parametrize("name", METHODS)
def test_what_is_sent_beside_a_model_has_one_form(name: str) -> None:
    """The server checks replies against what an untrained client would send."""
    hooks, theta = hooks_of(name, {}), MODEL["parameters"]
    received = hooks.broadcast(hooks.server_state(theta))
    first = hooks.client_update(theta, theta, WORK, received, {})
    later = hooks.client_update(theta, 3 * theta, WORK, received, first.state)
    forms = [
        {key: (array.shape, array.dtype) for key, array in sent.extra.items()}
        for sent in (first, later)
    ]
    assert forms[0] == forms[1]
    assert all(
        array.dtype == np.float32 for array in [*later.extra.values(), later.parameters]
    )
    assert bool(METHODS[name].hooks) == (
        name not in (*PAPER_METHODS, "fedet", "fedet+p")
        and METHODS[name].sends != "releases"
    )

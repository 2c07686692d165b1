"""The figures of a finished run are those of its last state."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.distillation import DistillConfig
from fedaux.config.sections import LocalConfig
from fedaux.core.failures import Failure
from fedaux.core.results import RoundResult
from fedaux.runs.callbacks import round_metrics
from fedaux.server.result import (
    FinishedRun,
    collapse_warning,
    describe_unknown_classes,
    first_remedy,
    last_evaluations,
)
from fedaux.server.run_state import RunState
from helpers.runs import finished_state
from helpers.tiny import CNN, MLP, TINY_CONFIG


def test_the_last_round_counts_and_not_the_best(result: FinishedRun) -> None:
    first, last = result.state.history
    better = replace(first, accuracy=dict.fromkeys(first.accuracy, 1.0))
    told = FinishedRun(replace(result.state, history=(better, last)), result.folder)
    assert told.curve == [1.0, last.mean_accuracy]
    assert told.accuracy == last.mean_accuracy < 1.0


def test_without_any_test_there_is_no_accuracy(result: FinishedRun) -> None:
    untested = [
        replace(one, accuracy={}, metrics={}, confusion={}, start={})
        for one in result.state.history
    ]
    state = replace(result.state, history=tuple(untested))
    told = FinishedRun(state, result.folder)
    assert (told.accuracy, told.start, told.curve) == (None, None, [])
    assert told.accuracy_in_words == "not tested"
    assert told.warnings == []
    found = json.loads(json.dumps(told.to_dict()))
    assert (found["accuracy"], found["prototypes"]) == (None, {})
    assert "accuracy" not in round_metrics(untested[-1])


def test_figures_for_scripts_are_json(result: FinishedRun) -> None:
    failures = (Failure("b", "gone"), Failure("a", "gone"))
    history = tuple(replace(one, failures=failures) for one in result.state.history)
    found = json.loads(
        json.dumps(
            FinishedRun(
                replace(result.state, history=history), Path("runs/x")
            ).to_dict()
        )
    )
    assert (found["folder"], found["method"], found["seed"], found["rounds"]) == (
        "runs/x",
        "fedaux",
        0,
        2,
    )
    assert (found["curve"], found["accuracy"]) == (result.curve, result.accuracy)
    assert found["prototypes"] == result.state.history[-1].accuracy
    assert found["failed"] == ["a", "b"]  # each once
    assert found["privacy"] == {
        "epsilon": 0.1,
        "delta": 1e-5,
        "statement": result.statement,
    }


def state(tables: list[list[list[int]]], **settings: object) -> RunState:
    config = replace(TINY_CONFIG, prototypes=(MLP, CNN)[: len(tables)], **settings)  # type: ignore[arg-type]
    done = finished_state(config)
    confusion = dict(zip(done.weights, tables, strict=True))
    return replace(done, history=(replace(done.history[-1], confusion=confusion),))


def digits(collapsed: bool) -> list[list[int]]:
    return [
        [36 if column == (0 if collapsed else row) else 0 for column in range(10)]
        for row in range(10)
    ]


def test_one_answer_to_everything_is_a_warning_and_a_good_model_none() -> None:
    assert collapse_warning(state([digits(False)])) == ""
    text = collapse_warning(state([digits(True)]))
    assert text.startswith("the model does not beat always answering '0'")
    assert "First try: --set" in text


def test_of_several_networks_the_one_that_collapsed_is_named() -> None:
    text = collapse_warning(state([digits(False), digits(True)]))
    assert text.startswith("cnn(features=8, width=4): the model")
    assert "mlp" not in text


def test_before_the_first_round_there_is_nothing_to_say() -> None:
    done = finished_state()
    assert last_evaluations(replace(done, history=())) == {}
    assert collapse_warning(replace(done, history=())) == ""
    label = next(iter(done.weights))
    metrics = done.history[-1].metrics[label]
    found = last_evaluations(done)[label]
    assert found.summary() == pytest.approx(metrics)
    assert {"auc", "recall_at_rate", "calibration_error"} <= set(metrics)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        # 240 records, batches of 32
        ({}, "--set local.epochs=5, because a client makes only 8 steps a round"),
        (
            {"local": LocalConfig(epochs=20), "distill": DistillConfig(epochs=1)},
            "--set distill.steps=200, because passes over few public examples are few steps",
        ),
        (
            {"local": LocalConfig(epochs=20), "method": "fedavg"},
            "--set method=fedavg+p",
        ),
        (
            {"local": LocalConfig(epochs=20), "distill": DistillConfig()},
            "head_init=private-head",
        ),
        ({"method": "ridge+p", "head_only": True}, "public data that look more like"),
    ],
)
def test_the_likeliest_cause_comes_first(
    settings: dict[str, object], says: str
) -> None:
    assert says in first_remedy(state([digits(True)], **settings))


def test_classes_that_noise_hides_are_named_with_their_counts() -> None:
    done = state([digits(False), digits(False)])
    one, two = done.weights
    last = replace(
        done.history[-1],
        unknown_classes={one: [(3, 12.4, 30.2)], two: [(0, -5.0, 1234.0)]},
    )
    done = replace(done, history=(last,))
    result = FinishedRun(done, Path("runs/x"))
    assert result.unknown_classes == [
        f"{one}, 3: about 12 ± 30 records",
        f"{two}, 0: about 0 ± 1,234 records",
    ]
    assert result.to_dict()["unknown_classes"] == result.unknown_classes
    assert describe_unknown_classes(done, one) == ["3: about 12 ± 30 records"]
    assert FinishedRun(state([digits(False)]), Path("runs/x")).unknown_classes == []
    again = RoundResult.from_dict(json.loads(json.dumps(last.to_dict())))
    assert again.unknown_classes == last.unknown_classes


def test_few_records_at_a_small_epsilon_need_less_noise() -> None:
    """ε = 0.01 with seven records a client was answered by more epochs."""
    state = finished_state()
    last = state.history[-1]
    few = {
        name: replace(metrics, records=7)
        for name, metrics in last.client_metrics.items()
    }
    state = replace(state, history=(replace(last, client_metrics=few),))
    privacy = replace(state.config.privacy, epsilon=0.01)
    noisy = replace(state, config=replace(state.config, privacy=privacy))
    assert first_remedy(noisy).startswith("a larger privacy.epsilon, or clients with")
    louder = replace(privacy, epsilon=1.0)
    loud = replace(state, config=replace(state.config, privacy=louder))
    assert "local.epochs" in first_remedy(loud)

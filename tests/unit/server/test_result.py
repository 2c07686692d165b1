"""The figures of a finished run are those of its last state."""

import json
from dataclasses import replace
from pathlib import Path

from fedaux.core.messages import Failure
from fedaux.server.result import FinishedRun


def test_the_last_round_counts_and_not_the_best(result: FinishedRun) -> None:
    first, last = result.state.history
    better = replace(first, accuracy=dict.fromkeys(first.accuracy, 1.0))
    told = FinishedRun(replace(result.state, history=(better, last)), result.folder)
    assert told.curve == [1.0, last.mean_accuracy]
    assert told.accuracy == last.mean_accuracy < 1.0


def test_the_statement_is_the_ledgers(result: FinishedRun) -> None:
    assert result.statement == result.state.ledger.statement()


def test_figures_for_scripts_are_json(result: FinishedRun) -> None:
    failures = (Failure("b", "gone"), Failure("a", "gone"))
    history = tuple(replace(one, failures=failures) for one in result.state.history)
    found = json.loads(json.dumps(FinishedRun(replace(result.state, history=history), Path("runs/x")).to_dict()))
    assert (found["folder"], found["method"], found["seed"], found["rounds"]) == ("runs/x", "fedaux", 0, 2)
    assert (found["curve"], found["accuracy"]) == (result.curve, result.accuracy)
    assert found["prototypes"] == result.state.history[-1].accuracy
    assert found["failed"] == ["a", "b"]  # each once
    assert found["privacy"] == {"epsilon": 0.1, "delta": 1e-5, "statement": result.statement}

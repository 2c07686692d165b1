"""Recalls with their intervals and all figures beside the baseline."""

from dataclasses import replace
from pathlib import Path

from fedaux.report.classes_section import classes_section
from fedaux.report.facts import RunFacts
from fedaux.server.result import FinishedRun
from helpers.runs import finished_state


def facts(table: list[list[int]], metrics: dict[str, float]) -> RunFacts:
    state = finished_state()
    label = next(iter(state.weights))
    last = replace(
        state.history[-1], confusion={label: table}, metrics={label: metrics} if metrics else {}, accuracy={label: 0.65}
    )
    return RunFacts(FinishedRun(replace(state, history=(last,)), Path()), ("ill", "well"), (), None, (), "")


def test_recalls_have_intervals_and_figures_a_baseline() -> None:
    section = classes_section(facts([[30, 10], [25, 35]], {"balanced_accuracy": 2 / 3, "majority": 0.6}))
    assert "75.0 % (60–86)" in section.figures[0].draw().inline()  # Wilson's interval of 30 of 40
    assert section.table is not None
    assert section.table.head == ("network", "accuracy", "balanced accuracy", "always the commonest class")
    assert section.table.rows[0][1:] == ("65.0 %", "66.7 %", "60.0 %")


def test_a_class_without_test_records_says_so_and_old_runs_have_no_table() -> None:
    section = classes_section(facts([[30, 10], [0, 0]], {}))
    assert "not tested" in section.figures[0].draw().inline()
    assert section.table is None

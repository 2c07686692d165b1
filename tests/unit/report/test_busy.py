"""A command that is busy says so."""

import time

import pytest

from fedaux.core.progress import ProgressTask
from fedaux.report import busy as module
from fedaux.report.busy import busy
from helpers.terminals import console, printed


def test_a_spinner_in_a_terminal_with_the_steps_of_the_work() -> None:
    on = console(terminal=True)
    with busy(on, "writing the report"):
        time.sleep(0.3)
        ProgressTask("reading files", 10, 3)
        time.sleep(0.3)
    assert "writing the report …" in printed(on)
    assert "writing the report: reading files: 3/10" in printed(on)


def test_lines_elsewhere_and_only_if_it_takes_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = console()
    with busy(on, "quick work"):
        pass
    assert printed(on) == ""
    monkeypatch.setattr(module, "FIRST_LINE_AFTER", 0.05)
    with busy(on, "slow work"):
        ProgressTask("reading files", 10, 3)
        time.sleep(0.5)
    assert printed(on).splitlines() == ["slow work: reading files: 3/10, 0 s so far"]

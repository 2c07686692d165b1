"""The panel, in a terminal of 100 columns."""

import io

import pytest
from rich.console import Console

from fedaux.deploy import status_panel as module
from fedaux.deploy.status import Status
from fedaux.deploy.status_panel import status_panel, watch
from helpers.statuses import NOW, PARIS, RUNNING


def shown(status: Status, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(status_panel(status))
    return [" ".join(line.strip("│╭╮╰╯─ \n").split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_all_that_is_known_is_there() -> None:
    lines = shown(RUNNING)
    assert lines[0] == "FedAUX"
    assert lines[1:6] == [
        "run running: round 2 of 5, train for 1:05",
        "progress 10 s ago; stuck after 5:00",
        "last round train 9.5 s, distil 0.2 s",
        "all rounds train 19.5 s, distil 0.5 s",
        "arrays 2.5 MB sent, 840 kB received",
    ]
    assert lines[7:10] == [
        "berlin online 3:20 10 s ago 0.75 0.25",
        "paris offline 1:10 train 1:05 never ? 1 no-answer 2",
        "paris, 1:01 ago: [b]gone",  # as it came, not as markup
    ]


def test_a_problem_is_said_and_nothing_is_cut_in_80_columns() -> None:
    lines = shown(Status(NOW, "failed", finished_rounds=3, rounds=5, problems=("run.sh goes on",), sites=(PARIS,)), 80)
    assert "run failed after round 3 of 5" in lines
    assert "problem: run.sh goes on" in lines
    assert "paris offline 1:10 train 1:05 never ? 1 no-answer 2" in lines


@pytest.mark.parametrize(("state", "text"), [("none", "none yet: run.sh starts one"), ("starting", "is being started")])
def test_there_is_no_run_to_speak_of(state: str, text: str) -> None:
    assert f"run {text}" in shown(Status(NOW, state))  # type: ignore[arg-type]


def test_it_is_drawn_until_somebody_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([RUNNING, RUNNING, Status(NOW, "finished", finished_rounds=5, rounds=5)])
    looks = iter([None, None])

    def sleep(seconds: float) -> None:
        assert seconds == 7.0
        if next(looks, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", sleep)
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    assert watch(console, lambda: next(found), 7.0).state == "finished"
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.index("running: round 2 of 5") < text.index("finished after round 5 of 5")

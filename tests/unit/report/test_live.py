"""A panel where there is a terminal, lines where there is none."""

import re
from dataclasses import replace

import pytest

from fedaux.core.failures import Failure
from fedaux.core.progress import (
    Notice,
    OrdersSent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SweepProgress,
    WorkProgress,
    track,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.report.live import Live
from helpers.terminals import console, printed, shown

RESULT = RoundResult(1, {"mlp": 0.5}, {"a": ClientMetrics(9, 0.1, 1.0)})


def test_plain_lines_without_a_terminal() -> None:
    on = console()
    with Live(on, clock=lambda: 0.0) as live:
        live.on_progress(RunStarted("FedAUX", "digits: 3 clients", (), 2))
        # the second comes too soon, the last is always printed
        for epoch, loss in enumerate((2.0, 1.5, 1.0), 1):
            live.on_progress(
                WorkProgress(
                    "pre-training cnn", epoch, 3, f"loss {loss:.3f}", "pretrain"
                )
            )
        live.on_progress(OrdersSent("release", None, ("a", "b"), 10_000))
        # too soon
        live.on_progress(ReplyReceived("release", None, "a", 10, done=1, total=2))
        live.on_progress(ReplyReceived("release", None, "b", 10, done=2, total=2))
        # the line of the round follows
        live.on_progress(OrdersSent("train", 1, ("a", "b"), 10_000))
        live.on_progress(ReplyReceived("train", 1, "a", 10, done=2, total=2))
        live.on_progress(
            WorkProgress("round 1", 0, 0, "averaging and distilling", "distil")
        )
        live.on_progress(Notice("a site has come"))
        live.on_progress(RoundFinished(RESULT, 2, ""))
    assert printed(on).splitlines() == [
        "FedAUX starts, digits: 3 clients",
        "pre-training cnn: 1/3, loss 2.000",
        "pre-training cnn: 3/3, loss 1.000",
        "releases: 0/2, 0.01 MB sent",
        "releases: 2/2, b answered",
        "a site has come",
        "round 1/2: accuracy 50.0 %, 1 client",
    ]


def test_a_round_that_the_server_cannot_test() -> None:
    untested = replace(RESULT, accuracy={})
    on = console(terminal=True)
    live = Live(on, clock=lambda: 0.0)
    live.on_progress(RunStarted("FedAUX", "npy: 3 clients", (), 2))
    live.on_progress(RoundFinished(untested, 2, ""))
    assert "not tested at the server" in shown(live)


def test_a_line_again_after_a_while_and_the_time_left() -> None:
    now, on = [0.0], console()
    live = Live(on, clock=lambda: now[0])
    for done, now[0] in ((1, 0.0), (2, 9.0), (3, 10.0)):
        live.on_progress(WorkProgress("features of x", done, 9, phase="features"))
    assert printed(on).splitlines() == [
        "features of x: 1/9",
        "features of x: 3/9, about 30 s left",
    ]


def test_a_resumed_run_shows_what_came_before() -> None:
    live = Live(console(terminal=True))
    first = replace(RESULT, failures=(Failure("b", "gone [/home]"),))
    live.on_progress(RunStarted("FedAvg", "digits [/bold]", (first,), 2))
    assert "1/2" in shown(live)
    assert "1, last b: gone [/home]" in shown(live)
    live.on_progress(
        RoundFinished(replace(RESULT, round=2, accuracy={"mlp": 0.9}), 2, "")
    )
    assert "90.0 %  ▅█" in shown(live)


def test_finished_runs_of_a_sweep_stay_in_sight() -> None:
    live = Live(console(terminal=True))
    live.on_progress(SweepProgress(0, 3))
    for done, name in enumerate(("FedAvg", "FedDF"), 1):
        live.on_progress(
            WorkProgress("pre-training cnn", 2, 2, phase="pretrain", run="extractor 1")
        )
        live.on_progress(RunStarted(name, "digits", (), 1, run=name))
        assert f"│ {name} " in shown(live)
        live.on_progress(RoundFinished(RESULT, 1, "", run=name))
        live.on_progress(SweepProgress(done, 3, name, 0.5))
        assert f"│ {name} " not in shown(live)
    live.on_progress(SweepProgress(3, 3, "FedAUX"))
    lines = [line.split() for line in shown(live).splitlines()]
    assert lines[:3] == [
        ["FedAvg", "50.0", "%"],
        ["FedDF", "50.0", "%"],
        ["FedAUX", "failed"],
    ]
    assert "3/3" in shown(live)
    assert "extractor" not in shown(live)


def test_runs_at_the_same_time_keep_their_figures_apart() -> None:
    live = Live(console(terminal=True))
    for name in ("FedAvg", "FedDF"):
        live.on_progress(RunStarted(name, "digits", (), 2, run=name))
    live.on_progress(
        RoundFinished(replace(RESULT, accuracy={"mlp": 0.9}), 2, "", run="FedAvg")
    )
    live.on_progress(
        RoundFinished(replace(RESULT, accuracy={"mlp": 0.1}), 2, "", run="FedDF")
    )
    assert "▁" not in shown(live)  # a curve is shown of one run only
    live.on_progress(SweepProgress(1, 2, "FedDF", 0.1))
    assert "90.0 %  █ " in shown(live)


def test_before_anything_is_heard_the_panel_says_so_and_counts_the_seconds() -> None:
    now = [100.0]
    live = Live(console(terminal=True), clock=lambda: now[0])
    now[0] = 103.0
    assert "starting" in shown(live)
    assert "3 s" in shown(live)


def test_work_far_below_has_a_bar_of_its_own_until_it_is_done() -> None:
    with Live(console(terminal=True)) as live:
        for number in track(range(3), "reading files"):
            if number:
                assert re.search(r"reading files .* \d/3", shown(live))
    assert "reading files" not in shown(live)


def test_work_that_takes_a_while_has_lines_and_quick_work_none() -> None:
    now, on = [0.0], console()
    live = Live(on, clock=lambda: now[0])
    for task, step in (("quick", 0.1), ("slow", 4.0)):
        for done in range(5):
            live.on_progress(WorkProgress(task, done, 4))
            now[0] += step
    assert printed(on).splitlines() == ["slow: 1/4", "slow: 4/4"]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_every_run_of_a_sweep_has_one_line(width: int) -> None:
    live = Live(console(terminal=True))
    live.on_progress(SweepProgress(0, 30))
    names = [
        f"FedProx+P, α = 0.01, privacy.epsilon = 0.125, seed {i}" for i in range(3)
    ]
    for name in names:
        live.on_progress(RunStarted("FedProx+P", "digits", (), 100, run=name))
        live.on_progress(RoundFinished(RESULT, 100, "", run=name))
        live.on_progress(
            ReplyReceived("train", 2, "client-042", 0, done=33, total=100, run=name)
        )
    lines = shown(live, width).splitlines()
    assert len([line for line in lines if "FedProx+P" in line]) == 3
    assert len(lines) == 2 + 1 + 3  # borders, all runs, each run
    assert all("1/100" in line for line in lines if "FedProx+P" in line)
    assert max(map(len, lines)) <= width


def test_rounds_are_estimated_from_rounds_and_not_from_the_preparation() -> None:
    now = [0.0]
    live = Live(console(terminal=True), clock=lambda: now[0])
    live.on_progress(RunStarted("FedAUX", "digits", (), 10))
    now[0] = 600.0  # ten minutes of pre-training
    for number in (1, 2):
        live.on_progress(OrdersSent("train", number, ("a",), 0))
        now[0] += 6.0
        live.on_progress(RoundFinished(replace(RESULT, round=number), 10, ""))
    left = live.bars.find("", "rounds").time_remaining
    assert left == pytest.approx(8 * 6.0, abs=7)


def test_an_interrupt_ends_with_its_code_and_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        pytest.raises(SystemExit) as caught,
        Live(console(), hint=lambda: "Go on [thus]"),
    ):
        raise KeyboardInterrupt
    assert caught.value.code == 130
    assert "Go on [thus]" in capsys.readouterr().err


def test_a_collapsed_model_is_a_warning_in_the_panel() -> None:
    live = Live(console(terminal=True))
    live.on_progress(RunStarted("FedAvg", "digits", (), 2))
    result = replace(
        RESULT, metrics={"mlp": {"balanced_accuracy": 0.25, "majority": 0.5}}
    )
    live.on_progress(
        RoundFinished(result, 2, "", "the model does not beat always answering '3'")
    )
    assert "25.0 %, while the commonest class has accuracy 50.0 %" in shown(live)
    assert "does not beat always answering '3'" in shown(live)
    live.on_progress(RoundFinished(replace(result, round=2), 2, "", ""))
    assert "does not beat" not in shown(live)

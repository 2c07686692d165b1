"""Every event has a line, and a step for a bar."""

from dataclasses import replace

import pytest

from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.core.progress import (
    Notice,
    OrdersSent,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesLooked,
    SweepProgress,
    WorkProgress,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.report.progress import (
    Step,
    describe,
    is_within_sum,
    print_progress,
    step,
)

RESULT = RoundResult(3, {"mlp": 0.5, "cnn": 0.7}, {"a": ClientMetrics(9, 0.1, 1.0)})
FULL = replace(
    RESULT, failures=(Failure("b", "gone"),), effective_teachers=1.5, epsilon=0.10001
)
# ε is rounded up
ALL = "accuracy 60.0 %, 1 client, 1 failed, 1.5 effective teachers, ε 0.101"
LOST = ReplyReceived("train", 4, "b", 0, failure=Failure("b", "gone"), done=2, total=3)
ACCOUNT = Account(2.0, 1e-5, "replace-one", "record", 1)
FEATURES = WorkProgress("features of cnn", 10, 20, phase="features")
EVENTS: list[tuple[ProgressEvent, str, Step]] = [
    (
        RunStarted("FedAUX", "digits", (), 9),
        "FedAUX starts, digits",
        Step("rounds", 0, 9, ""),
    ),
    (
        RunStarted("FedAUX", "digits", (RESULT,), 9),
        "FedAUX continues after round 1 of 9, digits",
        Step("rounds", 1, 9, ""),
    ),
    (FEATURES, "features of cnn: 10/20", Step("features of cnn", 10, 20, "")),
    (
        replace(FEATURES, run="FedDF"),
        "FedDF: features of cnn: 10/20",
        Step("features of cnn", 10, 20, ""),
    ),
    (
        WorkProgress("round 4", 0, 0, "distilling"),
        "round 4, distilling",
        Step("round 4", 0, 0, "distilling"),
    ),
    (
        OrdersSent("release", None, ("a", "b"), 2_500_000),
        "releases: 0/2, 2.50 MB sent",
        Step("releases", 0, 2, "2.50 MB sent"),
    ),
    (
        ReplyReceived("sums", None, "a", 10_000, done=1, total=3),
        "sums of features: 1/3, a answered",
        Step("sums of features", 1, 3, "a answered"),
    ),
    (
        SitesLooked(2.0, {}, {"a": ACCOUNT, "b": ACCOUNT}),
        "noisy counts: 2/2, at ε = 2 each",
        Step("noisy counts", 2, 2, "at ε = 2 each"),
    ),
    (LOST, "round 4: 2/3, b failed: gone", Step("round 4", 2, 3, "b failed: gone")),
    (
        replace(LOST, done=0, total=0),
        "round 4, b failed: gone",
        Step("round 4", 0, 0, "b failed: gone"),
    ),
    (RoundFinished(FULL, 9, "ε"), f"round 3/9: {ALL}", Step("rounds", 3, 9, ALL)),
    (SweepProgress(0, 4), "runs: 0/4", Step("runs", 0, 4, "")),
    (
        SweepProgress(1, 4, "FedDF", 0.25),
        "runs: 1/4, FedDF: accuracy 25.0 %",
        Step("runs", 1, 4, "FedDF: accuracy 25.0 %"),
    ),
    (
        SweepProgress(2, 4, "FedBE"),
        "runs: 2/4, FedBE: failed",
        Step("runs", 2, 4, "FedBE: failed"),
    ),
    (Notice("a site has come"), "a site has come", Step("a site has come", 0, 0, "")),
]


@pytest.mark.parametrize(
    ("event", "line", "bar"), EVENTS, ids=lambda value: type(value).__name__
)
def test_a_line_and_a_step(event: ProgressEvent, line: str, bar: Step) -> None:
    assert describe(event) == line
    assert step(event) == bar


def test_no_event_is_forgotten() -> None:
    assert {type(event) for event, _, _ in EVENTS} == set(
        ProgressEvent.__subclasses__()
    )


def test_a_server_logs_lines_but_not_work_far_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for event in (
        Notice("a site has come"),
        LOST,
        WorkProgress("reading files", 10, 20),
        FEATURES,
    ):
        print_progress(event)
    lines = [
        "a site has come",
        "round 4: 2/3, b failed: gone",
        "features of cnn: 10/20",
    ]
    assert capsys.readouterr().out.splitlines() == lines


def test_lines_have_names_that_a_reader_knows() -> None:
    work = WorkProgress("pre-training here:Net-f5294eac", 1, 2)
    assert describe(work) == "pre-training Net: 1/2"


def test_a_secure_sum_has_a_line_for_the_end_of_each_step() -> None:
    lost = Failure("b", "no answer")
    shown = [
        OrdersSent("sum", None, ("a", "b"), 100),
        ReplyReceived("sum", None, "a", 10, done=1, total=2),
        ReplyReceived("sum", None, "b", 10, done=2, total=2),
        ReplyReceived("sum", None, "b", 0, failure=lost, done=1, total=2),
        ReplyReceived("release", None, "a", 10, done=1, total=2),
    ]
    assert [is_within_sum(event) for event in shown] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_no_kind_of_event_was_forgotten() -> None:
    """A terminal would end the run with an error at an event that it does not know."""
    assert set(ProgressEvent.__subclasses__()) == {type(event) for event, *_ in EVENTS}

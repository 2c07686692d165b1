"""Every event has a line, and a step for a bar."""

from dataclasses import replace

import pytest

from fedaux.core.messages import Failure
from fedaux.core.progress import (
    AggregationStarted,
    AuditProgress,
    FeaturesProgress,
    Notice,
    OrdersSent,
    PretrainingProgress,
    ProgressEvent,
    ReleasesProgress,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
    SumsProgress,
    SweepProgress,
    SweepRunProgress,
    TrainingProgress,
    WorkProgress,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.report.progress import Step, describe, print_progress, step

RESULT = RoundResult(3, {"mlp": 0.5, "cnn": 0.7}, {"a": ClientMetrics(9, 0.1, 1.0)})
FULL = replace(RESULT, failures=(Failure("b", "gone"),), effective_teachers=1.5, epsilon=0.10001)
EVENTS: list[tuple[ProgressEvent, str, Step]] = [
    (RunStarted("FedAUX", "digits", (), 9), "FedAUX starts, digits", Step("rounds", 0, 9, "")),
    (
        RunStarted("FedAUX", "digits", (RESULT,), 9),
        "FedAUX continues after round 1 of 9, digits",
        Step("rounds", 1, 9, ""),
    ),
    (
        PretrainingProgress("cnn", 2, 5, "training", 1.25, 6.5, 12345.0),
        "pre-training cnn: 2/5, loss 1.250, rank 6.5, 12,345 views/s",
        Step("pre-training cnn", 2, 5, "loss 1.250, rank 6.5, 12,345 views/s"),
    ),
    (
        PretrainingProgress("cnn", 5, 5, "cache"),
        "pre-training cnn: 5/5, from the cache",
        Step("pre-training cnn", 5, 5, "from the cache"),
    ),
    (
        PretrainingProgress("cnn", 1, 1, "published"),
        "pre-training cnn: 1/1, published weights",
        Step("pre-training cnn", 1, 1, "published weights"),
    ),
    (WorkProgress("reading files", 10, 20), "reading files: 10/20", Step("reading files", 10, 20, "")),
    (FeaturesProgress("cnn", 10, 20), "features of cnn: 10/20", Step("features of cnn", 10, 20, "")),
    (
        ReleasesProgress(1, 2, 3, 1, 2_500_000, 10_000),
        "releases: 2/3, 1 failed, extractor 2.50 MB, public map 0.01 MB",
        Step("releases", 2, 3, "1 failed, extractor 2.50 MB, public map 0.01 MB"),
    ),
    (
        ReleasesProgress(1, 3, 3, 0, 0, 0),
        "releases: 3/3, extractor not sent, public map 0.00 MB",
        Step("releases", 3, 3, "extractor not sent, public map 0.00 MB"),
    ),
    (
        SumsProgress(1, 2, 3, 1, 2_500_000),
        "sums of features: 2/3, 1 failed, extractor 2.50 MB",
        Step("sums of features", 2, 3, "1 failed, extractor 2.50 MB"),
    ),
    (TrainingProgress(4, 1, 3, 0), "round 4: 1/3, training", Step("round 4", 1, 3, "training")),
    (TrainingProgress(4, 2, 3, 2), "round 4: 2/3, 2 failed", Step("round 4", 2, 3, "2 failed")),
    (SitesConnected(2, 3), "sites connected: 2/3", Step("sites connected", 2, 3, "")),
    (
        OrdersSent("train", ("a", "b"), 4, 2_500_000),
        "train sent, 2 clients, 2.50 MB",
        Step("train sent", 0, 0, "2 clients, 2.50 MB"),
    ),
    (
        ReplyReceived("a", "release", 10_000),
        "a, release received, 0.01 MB",
        Step("a", 0, 0, "release received, 0.01 MB"),
    ),
    (
        ReplyReceived("b", "train", 0, failure=Failure("b", "gone")),
        "b, train failed, gone",
        Step("b", 0, 0, "train failed, gone"),
    ),
    (AggregationStarted(4), "round 4, averaging and distilling", Step("round 4", 0, 0, "averaging and distilling")),
    (
        RoundFinished(RESULT, 9, ""),
        "round 3/9: accuracy 0.600, 1 client",
        Step("rounds", 3, 9, "accuracy 0.600, 1 client"),
    ),
    (
        RoundFinished(FULL, 9, "ε"),
        "round 3/9: accuracy 0.600, 1 client, 1 failed, 1.5 effective teachers, ε 0.101",  # rounded up
        Step("rounds", 3, 9, "accuracy 0.600, 1 client, 1 failed, 1.5 effective teachers, ε 0.101"),
    ),
    (SweepProgress(0, 4), "runs: 0/4", Step("runs", 0, 4, "")),
    (
        SweepProgress(1, 4, "FedDF", 0.25),
        "runs: 1/4, FedDF: accuracy 0.250",
        Step("runs", 1, 4, "FedDF: accuracy 0.250"),
    ),
    (SweepProgress(2, 4, "FedBE"), "runs: 2/4, FedBE: failed", Step("runs", 2, 4, "FedBE: failed")),
    (
        SweepRunProgress("FedDF", AggregationStarted(4)),
        "FedDF: round 4, averaging and distilling",
        step(AggregationStarted(4)),
    ),
    (AuditProgress("hello", 2, 27), "attacks: 2/27, hello", Step("attacks", 2, 27, "hello")),
    (Notice("a site has come"), "a site has come", Step("a site has come", 0, 0, "")),
]


@pytest.mark.parametrize(("event", "line", "bar"), EVENTS, ids=lambda value: type(value).__name__)
def test_a_line_and_a_step(event: ProgressEvent, line: str, bar: Step) -> None:
    assert describe(event) == line
    assert step(event) == bar


def test_no_event_is_forgotten() -> None:
    assert {type(event) for event, _, _ in EVENTS} == set(ProgressEvent.__subclasses__())


def test_a_server_logs_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_progress(Notice("a site has come"))
    print_progress(OrdersSent("train", ("a", "b"), 4, 0))
    print_progress(ReplyReceived("a", "train", 0))
    print_progress(ReplyReceived("b", "train", 0, failure=Failure("b", "gone")))
    print_progress(WorkProgress("reading files", 10, 20))
    assert capsys.readouterr().out == "a site has come\nb, train failed, gone\n"

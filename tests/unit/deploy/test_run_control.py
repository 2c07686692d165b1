"""A run is started once, attended through restarts of the server, and ends with the
code that it deserves.
"""

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
from flwr.supercore.corestate import sql_corestate

from fedaux.core.errors import Exit
from fedaux.deploy import run_control
from fedaux.deploy.run_control import LinkError, RunControl

WORDS = ("--run-config", 'out="/run"')


class Flower:
    """Flower's command line at a server: what it says of runs, one answer after the
    other, and the log so far.
    """

    def __init__(
        self, *statuses: str | None, log: list[list[str]] | None = None
    ) -> None:
        self.statuses, self.log, self.calls = (
            list(statuses),
            log or [["round 1\n"]],
            list[tuple[str, ...]](),
        )

    def call(self, *words: str) -> str:
        self.calls.append(words)
        if words[0] == "run":
            return json.dumps({"success": True, "run-id": "7"})
        status = self.statuses.pop(0)
        if status is None:
            return '{"success": false, "error-message": "no connection"}'
        status, _, details = status.partition(" ")
        runs = (
            [{"run-id": "7", "status": status, "status-details": details or "why"}]
            if status
            else []
        )
        return json.dumps({"success": True, "runs": runs})

    def follow(self, *words: str) -> Iterator[str]:
        self.calls.append(words)
        yield from self.log.pop(0) if self.log else ()

    @property
    def started(self) -> int:
        return sum(words[0] == "run" for words in self.calls)


def control(flower: Flower, **changes: Any) -> tuple[RunControl, list[str], list[str]]:
    said, shown = list[str](), list[str]()
    facts = {
        "call": flower.call,
        "follow": flower.follow,
        "say": said.append,
        "show": shown.append,
    }
    return RunControl(**{**facts, "sleep": lambda _: None, **changes}), said, shown


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("finished:completed", 0),
        ("finished:failed", Exit.NEGATIVE),
        ("finished:stopped", Exit.STOPPED),
    ],
)
def test_the_exit_code_is_that_of_the_run(end: str, code: int) -> None:
    flower = Flower("", end)
    runs, said, shown = control(flower)
    assert runs.main(WORDS) == code
    assert flower.calls[1] == ("run", "app", "fedaux", *WORDS, "--format", "json")
    assert shown == ["round 1\n"]
    assert bool(said) == (code != 0)
    assert all(f"ended as {end}: why" in text for text in said)


def test_an_app_that_was_killed_is_started_again_a_few_times() -> None:
    """Somebody had to call run.sh."""
    lost = "finished:failed No heartbeat received from the task"
    # that is how Flower says it
    assert lost.partition(" ")[2] in inspect.getsource(sql_corestate)
    flower = Flower("", lost, "finished:completed")
    runs, said, _ = control(flower)
    assert runs.main(WORDS) == 0
    assert flower.started == 2
    assert [call for call in flower.calls if call[0] == "run"] == [
        ("run", "app", "fedaux", *WORDS, "--format", "json")
    ] * 2
    assert "the server's app is gone" in said[0]
    flower = Flower("", *[lost] * 9)
    assert control(flower)[0].main(WORDS) == Exit.NEGATIVE
    assert flower.started == 1 + run_control.RESTARTS


@pytest.mark.parametrize("status", ["pending", "starting", "running"])
def test_a_run_that_goes_on_is_attended_and_no_second_one_started(status: str) -> None:
    flower = Flower(status, "finished:completed")
    runs, said, shown = control(flower)
    assert runs.main(WORDS) == 0
    assert flower.started == 0
    assert "run 7 continues" in said[0]
    assert shown == ["round 1\n"]


def test_a_restart_of_the_server_is_waited_for_and_no_line_is_shown_twice() -> None:
    log = [["round 1\n", "round 2\n"], [], ["round 1\n", "round 2\n", "round 3\n"]]
    flower = Flower("", None, None, "running", "finished:completed", log=log)
    runs, said, shown = control(flower)
    assert runs.main(WORDS) == 0
    assert shown == ["round 1\n", "round 2\n", "round 3\n"]
    assert flower.started == 1
    assert said == ["the server does not answer, waiting for it"]


def test_a_server_that_is_not_there_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(LinkError, match=r"Start superlink\.sh"):
        control(Flower(None))[0].main(WORDS)
    monkeypatch.setattr(run_control, "SILENCE_LIMIT", 10.0)
    with pytest.raises(LinkError, match=r"Cannot follow run 7: .* Start run\.sh again"):
        control(Flower("", *[None] * 9))[0].main(WORDS)


def test_a_run_that_is_not_taken_is_an_error() -> None:
    flower = Flower("")
    runs, *_ = control(
        flower,
        call=lambda *words: flower.call(*words) if words[0] == "list" else "Traceback",
    )
    with pytest.raises(LinkError, match="did not take the run"):
        runs.main(WORDS)


def test_the_reason_is_the_servers_own() -> None:
    details = "ServerApp failed with exception: Cannot begin: 1 of 2 sites take part."
    runs, said, _ = control(Flower("", f"finished:failed {details}"))
    assert runs.main(WORDS) == Exit.NEGATIVE
    assert said[-1] == (
        "run 7 ended as finished:failed: Cannot begin: 1 of 2 sites take part. run.sh "
        "continues after its last whole round."
    )


def test_who_interrupts_it_is_told_that_the_run_goes_on() -> None:
    def interrupted(*_: str) -> Iterator[str]:
        raise KeyboardInterrupt

    runs, said, _ = control(Flower(""), follow=interrupted)
    assert runs.main(WORDS) == Exit.STOPPED
    assert "run 7 continues while the server is up" in said[0]
    assert "flwr stop 7 fedaux" in said[0]

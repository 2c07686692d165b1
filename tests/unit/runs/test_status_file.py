"""The file is there from the first moment, follows the run, and says how it ended."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.core.messages import NO_ANSWER, Account, Failure
from fedaux.core.progress import Notice, OrdersSent, RoundFinished
from fedaux.runs import status_file
from fedaux.runs.run_status import FILE, RunStatus
from fedaux.runs.status_file import StatusFile, is_alive
from helpers.runs import finished_state
from helpers.tiny import TINY_CONFIG


def load(folder: Path) -> RunStatus:
    found = RunStatus.load(folder)
    assert found is not None
    return found


def test_it_follows_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_file, "EVERY", 0.001)
    pause = threading.Event()
    with StatusFile(tmp_path, TINY_CONFIG) as status:
        assert (load(tmp_path).outcome, load(tmp_path).phase) == ("running", "start")
        status.on_progress(OrdersSent("train", ("a",), 1, 10))
        for _ in range(2000):
            if load(tmp_path).phase == "train":
                break
            pause.wait(0.01)
        assert load(tmp_path).sites["a"].asked_for == "train"
    assert (load(tmp_path).outcome, load(tmp_path).error) == ("finished", "")


def test_a_writer_that_has_nothing_new_to_say_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_file, "EVERY", 0.001)
    monkeypatch.setattr(status_file, "BEAT", 0.001)
    pause = threading.Event()
    now = time.time()
    with StatusFile(tmp_path, TINY_CONFIG):
        os.utime(tmp_path / FILE, (now - 3600, now - 3600))
        for _ in range(2000):
            if is_alive(tmp_path, now):
                break
            pause.wait(0.01)
        assert is_alive(tmp_path, now)
    os.utime(tmp_path / FILE, (now - 59, now - 59))
    assert is_alive(tmp_path, now)
    assert not is_alive(tmp_path, now + 2)
    assert not is_alive(tmp_path / "nowhere", now)


def test_many_events_are_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(status_file, "write_atomically", lambda path, data: written.append(data))
    monkeypatch.setattr(status_file, "EVERY", 60.0)
    with StatusFile(tmp_path, TINY_CONFIG) as status:
        for number in range(1000):
            status.on_progress(OrdersSent("train", (str(number),), 1, 1))
    assert len(written) <= 3
    assert b'"999"' in written[-1]  # the last one is never lost


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (RuntimeError("no site\nanswers"), "failed", "no site answers"),
        (KeyError(), "failed", "KeyError"),
        (KeyboardInterrupt(), "stopped", "it was told to stop"),
        (SystemExit(0), "stopped", "it was told to stop"),
        (SystemExit(1), "stopped", "it was told to stop"),
    ],
    ids=repr,
)
def test_it_says_how_the_run_ended(tmp_path: Path, error: BaseException, outcome: str, text: str) -> None:
    with pytest.raises(type(error)), StatusFile(tmp_path, TINY_CONFIG):
        raise error
    assert (load(tmp_path).outcome, load(tmp_path).error) == (outcome, text)


def test_rounds_of_before_count(tmp_path: Path) -> None:
    state = finished_state()
    with StatusFile(tmp_path, TINY_CONFIG) as status:
        status.restore(None)
        status.restore(state)
    assert load(tmp_path).finished_rounds == state.round
    assert load(tmp_path).sites.keys() == state.accounts.keys()


def test_a_server_that_merges_regions_counts_regions(tmp_path: Path) -> None:
    """One reply a round, whatever the number of its clients; what they spent is the most that one of them has."""
    state = finished_state()
    one, two, three = state.history[0].client_metrics
    accounts = {
        name: Account(ε, 1e-5, "replace-one", "record", 2) for name, ε in ((one, 0.5), (two, 0.4), (three, 0.7))
    }
    lost = Failure(two, "gone", NO_ANSWER)
    result = replace(state.history[0], failures=(lost, Failure("left", "gone", NO_ANSWER)))
    shown = {one: "1of2", two: "1of2", three: "2of2"}
    with StatusFile(tmp_path, TINY_CONFIG, shown) as status:
        assert list(load(tmp_path).sites) == ["1of2", "2of2"]
        status.restore(replace(state, history=(result,), accounts=accounts | {"left": accounts[three]}))
        status.on_progress(RoundFinished(replace(result, round=2), 2, ""))
    found = load(tmp_path)
    assert found.finished_rounds == 2
    assert {name: (site.replies, site.failures, site.epsilon) for name, site in found.sites.items()} == {
        "1of2": (1, {NO_ANSWER: 2}, 0.5),
        "2of2": (1, {}, 0.7),
    }
    assert found.sites["1of2"].last_error == f"{two}: gone"


def test_a_disk_that_is_full_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(status_file, "write_atomically", full)
    with StatusFile(tmp_path, TINY_CONFIG) as status:
        status.on_progress(Notice("still here"))
    assert not (tmp_path / FILE).exists()

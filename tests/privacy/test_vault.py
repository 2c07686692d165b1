"""A client makes one release: the same request gets it again to the bit, every other request gets nothing."""

import json
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.exchange import Release
from fedaux.privacy.vault import BudgetError, Vault


def made(values: tuple[int, ...] = (2**62, -(2**62), 0)) -> Release:
    arrays = {"values": np.array(values, np.int64)}
    return Release("a", "s", 7, 0.1, 1e-5, "replace-one", "opendp", 2.0**21, 1e8 / 3, 1e-7 / 3, False, arrays)


def never() -> Release:
    raise AssertionError("private records were read")


def facts(one: Release) -> dict[str, object]:
    return {**asdict(one), "arrays": {name: (a.dtype, a.tolist()) for name, a in one.arrays.items()}}


def test_a_first_request_is_answered_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert facts(Vault(tmp_path / "some" / "where").once("x", made)) == facts(made())


def test_the_same_request_gets_the_same_bytes_after_a_restart(tmp_path: Path) -> None:
    Vault(tmp_path).once("x", made)
    assert facts(Vault(tmp_path).once("x", never)) == facts(made())


def test_any_other_request_is_refused_before_a_record_is_read(tmp_path: Path) -> None:
    Vault(tmp_path).once("x", made)
    for other in ("y", "", "x ", "xx"):
        with pytest.raises(BudgetError, match="another release is refused: this client's budget is spent"):
            Vault(tmp_path).once(other, never)
    assert facts(Vault(tmp_path).once("x", never)) == facts(made())


def test_a_client_that_allows_more_answers_more_and_all_of_them_again(tmp_path: Path) -> None:
    for mark, request in enumerate("xyz"):
        Vault(tmp_path).once(request, lambda mark=mark: made((mark,)), allowed=3)  # type: ignore[misc]
    with pytest.raises(BudgetError, match=r"privacy\.releases = 3"):
        Vault(tmp_path).once("w", never, allowed=3)
    for mark, request in enumerate("xyz"):  # what was released stays released, even if less is allowed now
        assert Vault(tmp_path).once(request, never, allowed=1).arrays["values"].tolist() == [mark]


def test_private_trainings_are_counted_across_restarts(tmp_path: Path) -> None:
    Vault(tmp_path).once("x", made)
    for _ in range(2):
        Vault(tmp_path).train_once(allowed=2, noise=1.25)
        assert Vault(tmp_path).noise == 1.25
    with pytest.raises(BudgetError, match=r"for 2 rounds, and they are used up.*privacy\.train_rounds"):
        Vault(tmp_path).train_once(allowed=2)
    assert facts(Vault(tmp_path).once("x", never)) == facts(made())


def test_clients_have_a_vault_each(tmp_path: Path) -> None:
    Vault(tmp_path / "a").once("x", made)
    assert facts(Vault(tmp_path / "b").once("y", made)) == facts(made())


def test_the_request_is_on_disk_before_the_release_is_made(tmp_path: Path) -> None:
    def make() -> Release:
        assert json.loads((tmp_path / "spent.json").read_text())["requests"] == ["x"]
        assert not (tmp_path / "release-0.json").exists()
        return made()

    Vault(tmp_path).once("x", make)


@pytest.mark.parametrize("error", [RuntimeError("not solved"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_failed_attempt_counts_but_may_be_repeated(tmp_path: Path, error: BaseException) -> None:
    def fail() -> Release:
        raise error

    with pytest.raises(type(error)):
        Vault(tmp_path).once("x", fail)
    with pytest.raises(BudgetError):
        Vault(tmp_path).once("y", never)
    assert facts(Vault(tmp_path).once("x", made)) == facts(made())
    assert facts(Vault(tmp_path).once("x", never)) == facts(made())


def test_nothing_is_returned_that_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Release:
        monkeypatch.setattr("os.fsync", full)
        return made()

    def full(_: int) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Vault(tmp_path).once("x", make)
    monkeypatch.undo()
    assert facts(Vault(tmp_path).once("x", lambda: made((1, 2)))) == facts(made((1, 2)))  # the first was never seen


def test_no_record_is_read_unless_the_request_was_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        Vault(tmp_path).once("x", never)


def test_a_damaged_vault_makes_no_second_release(tmp_path: Path) -> None:
    Vault(tmp_path).once("x", made)
    (tmp_path / "release-0.json").write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        Vault(tmp_path).once("x", never)


def test_the_files_are_complete_readable_and_for_their_owner_only(tmp_path: Path) -> None:
    Vault(tmp_path).once("x", made)
    visible = sorted(path for path in tmp_path.iterdir() if not path.name.startswith("."))
    assert [path.name for path in visible] == ["release-0.json", "spent.json"]
    assert [path.stat().st_mode & 0o777 for path in visible] == [0o600, 0o600]
    assert json.loads((tmp_path / "release-0.json").read_text()) == {
        **{key: value for key, value in asdict(made()).items() if key != "arrays"},
        "values": [2**62, -(2**62), 0],
    }


def _race(folder: Path, barrier: Any, answers: Any, mark: int) -> None:
    """In a process of its own: ask at the same moment as the others, and be slow about it."""

    def make() -> Release:
        time.sleep(0.2)
        return made((mark,))

    barrier.wait()
    answers.put(Vault(folder).once("x", make).arrays["values"].tolist())


def test_processes_that_ask_at_once_get_one_release(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(3), context.Queue()
    racers = [context.Process(target=_race, args=(tmp_path, barrier, answers, mark)) for mark in range(3)]
    for racer in racers:
        racer.start()
    found = [answers.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
    assert found[0] == found[1] == found[2]
    assert [racer.exitcode for racer in racers] == [0, 0, 0]


def test_threads_that_ask_at_once_get_one_release(tmp_path: Path) -> None:
    barrier, calls = threading.Barrier(8), []

    def ask(mark: int) -> list[int]:
        def make() -> Release:
            calls.append(mark)
            time.sleep(0.05)
            return made((mark,))

        barrier.wait()
        return list(Vault(tmp_path).once("x", make).arrays["values"].tolist())

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert len(calls) == 1
    assert found == [calls] * 8


def test_of_threads_that_ask_differently_only_one_is_answered(tmp_path: Path) -> None:
    barrier, calls = threading.Barrier(8), []

    def ask(mark: int) -> bool:
        def make() -> Release:
            calls.append(mark)
            time.sleep(0.05)
            return made((mark,))

        barrier.wait()
        try:
            Vault(tmp_path).once(f"request {mark}", make)
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(ask, range(8)))
    assert len(calls) == 1
    assert [mark for mark, one in enumerate(answered) if one] == calls

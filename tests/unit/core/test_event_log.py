"""One JSON object a line, rotated, for its owner alone; and a log that cannot be
written costs nothing else.
"""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedaux.core.event_log import EventLog, printable


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_has_all_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log" / "events.jsonl"
    log = EventLog(path, "f00d")
    log.write(
        "reply-failed", "gone\n\x1b[2Jé", logging.WARNING, "berlin", 3, kind="no-answer"
    )
    log.close()
    log = EventLog(path, "f00d")  # another process goes on in the same file
    log.write("notice", "hello")
    log.close()
    first, second = lines(path)
    assert list(first) == [
        "time",
        "level",
        "run",
        "round",
        "site",
        "event",
        "message",
        "kind",
    ]
    assert datetime.now(UTC) - datetime.fromisoformat(first.pop("time")) < timedelta(
        hours=1
    )
    assert first == {
        "level": "warning",
        "run": "f00d",
        "round": 3,
        "site": "berlin",
        "event": "reply-failed",
        "message": "gone  [2Jé",
        "kind": "no-answer",
    }
    assert (second["level"], second["round"], second["site"]) == ("info", None, "")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )


def test_files_are_rotated_and_old_ones_go(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", megabytes=0.002, files=2)
    for number in range(100):
        log.write("notice", str(number))
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "events.jsonl",
        "events.jsonl.1",
        "events.jsonl.2",
    ]
    kept = [
        row
        for name in (".2", ".1", "")
        for row in lines(tmp_path / f"events.jsonl{name}")
    ]
    assert [row["message"] for row in kept] == [
        str(number) for number in range(100 - len(kept), 100)
    ]
    assert all(
        path.stat().st_size <= 2000 and path.stat().st_mode & 0o777 == 0o600
        for path in tmp_path.iterdir()
    )


def test_the_environment_says_where_and_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDAUX_LOG", raising=False)
    EventLog.from_environment().write("notice", "nobody asked for it")
    monkeypatch.setenv("FEDAUX_LOG", str(tmp_path / "events.jsonl"))
    monkeypatch.setenv("FEDAUX_LOG_MB", "0.001")
    monkeypatch.setenv("FEDAUX_LOG_FILES", "many")
    log = EventLog.from_environment("f00d")
    for _ in range(100):
        log.write("notice", "")
    log.close()
    assert len(list(tmp_path.iterdir())) == 6  # a number that is none is the default
    assert lines(tmp_path / "events.jsonl")[0]["run"] == "f00d"


def test_a_log_that_cannot_be_written_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events.jsonl").mkdir()
    log = EventLog(tmp_path / "events.jsonl")
    log.write("notice", "a")
    log.write("notice", "b")
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_texts_of_others_are_one_short_line() -> None:
    assert printable("a\nb\x1b]0;\x07c\u202e") == "a b ]0; c "
    assert len(printable("x" * 9999)) == 500
    assert printable("word " * 101) == "word " * 99 + "…"
    assert printable("word " * 99 + "words") == "word " * 99 + "words"

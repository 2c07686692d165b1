"""`fedaux init`, `report` and `--json`: what people and scripts get."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedaux.algorithms.run_state import RunState
from fedaux.cli import main
from fedaux.config.schema import Config
from fedaux.config.starters import STARTERS
from helpers.commands import TINY


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


def fedaux(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedaux", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize("kind", STARTERS)
def test_a_starter_is_a_config_that_loads(kind: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fedaux(monkeypatch, "init", kind, "new") == 0
    text = (place / "new" / f"{kind}.toml").read_text()
    assert Config.load(place / "new" / f"{kind}.toml").method == "fedaux"
    assert text.count("#") >= 10  # commented
    assert max(map(len, text.splitlines())) <= 120


def test_the_starter_for_a_model_runs_as_it_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "init", "model") == 0
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    assert fedaux(monkeypatch, "run", "model.toml", "--set", "rounds=2") == 0
    assert "FedAUX after 2 rounds" in capsys.readouterr().out
    assert (place / "runs" / "model-fedaux-seed0" / "report.html").is_file()


def test_a_starter_in_another_folder_finds_its_module(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "init", "model", "own") == 0
    assert "fedaux run own/model.toml" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    assert fedaux(monkeypatch, "run", "own/model.toml", "--set", "rounds=1", "--json") == 0


def test_json_is_one_object_and_nothing_else(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "run", "tiny.toml", "--out", "out", "--json") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    state = RunState.load(place / "out")
    assert found["accuracy"] == next(iter(state.history[-1].accuracy.values()))
    assert 0.0999 < found["privacy"]["epsilon"] <= 0.1
    assert found["report"] == "out/report.html"
    assert "round 2/2: accuracy" in err  # people may watch

    for words, key in (
        (("resume", "out"), "curve"),
        (("report", "out"), "report"),
        (("privacy", "report", "out"), "statement"),
        (("prepare", "tiny.toml"), "extractors"),
        (("init", "text"), "files"),
        (("deploy", "init", "sites", "--site", "a"), "readme"),
        (("privacy", "audit", "--only", "questions"), "violated"),
        (("privacy", "plan", "--records", "100", "--epsilon", "1"), "kept"),
    ):
        assert fedaux(monkeypatch, *words, "--json") == 0
        assert key in json.loads(capsys.readouterr().out), words


def test_json_of_a_check_with_problems(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "deploy", "init", "sites", "--site", "a") == 0
    capsys.readouterr()
    assert fedaux(monkeypatch, "deploy", "check", "sites/sites/a", "--json") == 1  # no server is up
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert any(one["ok"] is False for one in findings)


def test_a_report_of_one_run_of_all_below_and_of_two(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("fedavg", "feddf"):
        assert fedaux(monkeypatch, "run", "tiny.toml", "--set", f"method={method}") == 0
    one, two = (Path("runs") / f"tiny-{method}-seed0" for method in ("fedavg", "feddf"))
    for words, where in (((one,), one), (("runs",), Path("runs")), ((one, two, "--out", "both"), Path("both"))):
        (place / where / "report.html").unlink(missing_ok=True)
        capsys.readouterr()
        assert fedaux(monkeypatch, "report", *words) == 0
        assert f"Report: {where / 'report.html'}" in capsys.readouterr().out
        assert ("side by side" in (place / where / "report.html").read_text()) == (where != one)


def test_help_is_quick(tmp_path: Path) -> None:
    """Below half a second of processor time: the least of three, as the machine has other things to do."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-c", "from fedaux.cli import main; main()", "--help"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.5, times
    for command in (
        "demo",
        "init",
        "run",
        "resume",
        "prepare",
        "report",
        "compare",
        "sweep",
        "study",
        "export",
        "predict",
    ):
        assert command in done.stdout


def test_every_command_teaches_with_an_example() -> None:
    import typer

    from fedaux.cli import app

    def commands(group: object, path: str) -> list[tuple[str, object]]:
        found = []
        for name, one in getattr(group, "commands", {}).items():
            found += commands(one, f"{path} {name}") if hasattr(one, "commands") else [(f"{path} {name}", one)]
        return found

    every = commands(typer.main.get_command(app), "fedaux")
    assert len(every) >= 17
    for path, one in every:
        assert f"$ {path}" in (getattr(one, "epilog", None) or ""), path


def test_completion_is_offered() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "_FEDAUX_COMPLETE": "complete_bash"}
    env |= {"COMP_WORDS": "fedaux pre", "COMP_CWORD": "1"}
    words = [sys.executable, "-c", "import sys; sys.argv[0] = 'fedaux'; from fedaux.cli import main; main()"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert "prepare" in done.stdout
    assert "resume" not in done.stdout

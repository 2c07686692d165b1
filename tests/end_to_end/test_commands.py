"""Commands that train: what they print, write and exit with, and that nothing is done
twice.
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.schema import Config
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import release_mechanism
from fedaux.server.run_state import HISTORY, STATE_FILE, RunState
from helpers.accounts import enter, fails
from helpers.commands import fedaux, paragraph
from helpers.tiny import TINY_TOML


def test_a_run_its_repetition_and_another_in_its_place(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = config.parent / "out"
    assert fedaux(monkeypatch, "run", config, "--out", out) == 0
    said = paragraph(capsys.readouterr().out)
    state = RunState.load(out)
    assert (state.round, len(state.releases)) == (2, 3)
    history = [json.loads(line) for line in (out / HISTORY).read_text().splitlines()]
    assert [record["round"] for record in history] == [1, 2]
    assert (
        "FedAUX after 2 rounds: accuracy "
        f"{100 * next(iter(history[-1]['accuracy'].values())):.1f} %" in said
    )
    assert (
        "Privacy. Scores: ε = 1, δ = 1e-05 per client. Models are not protected."
        in said
    )
    assert "failed" not in said
    assert f"Report: {out / 'report.html'}" in said
    assert "FedAUX on digits" in (out / "report.html").read_text()
    for name in ("split.svg", "curves.svg"):
        assert (
            "<polyline" in (out / name).read_text()
            or "<circle" in (out / name).read_text()
        )

    before = (out / STATE_FILE).read_bytes()
    # the same run is read, not repeated
    assert fedaux(monkeypatch, "run", config, "--out", out) == 0
    assert fedaux(monkeypatch, "resume", out) == 0
    assert paragraph(capsys.readouterr().out).count("FedAUX after 2 rounds") == 2
    assert (out / STATE_FILE).read_bytes() == before

    assert fedaux(monkeypatch, "run", config, "--out", out, "--set", "seed=1") == 5
    assert (
        "holds another run, because it differs in seed. Choose a new folder."
        in paragraph(capsys.readouterr().err)
    )
    assert (out / STATE_FILE).read_bytes() == before


def test_a_finished_run_goes_on_with_more_rounds_in_its_folder(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = config.parent / "out"

    def run(*settings: str) -> int:
        return fedaux(
            monkeypatch,
            "run",
            config,
            "--out",
            out,
            *(w for one in settings for w in ("--set", one)),
        )

    assert run("rounds=1") == 0
    first = RunState.load(out)
    assert run("rounds=3") == 0
    after = RunState.load(out)
    assert (after.round, after.config.rounds) == (3, 3)
    (record,) = first.history
    assert after.history[0] == replace(record, confusion=None, calibration=None)
    # nobody was asked for a second release
    for client, release in first.releases.items():
        assert (
            after.releases[client].arrays["values"].tolist()
            == release.arrays["values"].tolist()
        )
    assert "FedAUX after 3 rounds" in paragraph(capsys.readouterr().out)

    assert run("rounds=2") == 5
    assert "it differs in rounds. Choose a new folder." in paragraph(
        capsys.readouterr().err
    )
    assert run("rounds=4", "seed=1", "local.lr=0.5") == 5
    assert "it differs in rounds, seed, local. Choose" in paragraph(
        capsys.readouterr().err
    )
    assert RunState.load(out).round == 3


def test_clients_that_failed_are_named_with_their_reason(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = config.parent / "out"
    privacy = Config.load(config).privacy
    store = BudgetStore(out / "clients" / "client-001", privacy)
    # a release was asked for before, by somebody else
    with pytest.raises(ZeroDivisionError):
        enter(store, "other", release_mechanism(9, privacy), fails)
    assert fedaux(monkeypatch, "run", config, "--out", out) == 0
    said = paragraph(capsys.readouterr().out)
    assert (
        "1 client failed at least once, client-001: no score: its privacy budget does "
        "not allow it" in said
    )
    assert sorted(RunState.load(out).releases) == ["client-000", "client-002"]


def test_seeded_noise_is_never_passed_off_as_private(config: Path) -> None:
    words = [
        "run",
        str(config),
        "--out",
        str(config.parent / "out"),
        "--set",
        "privacy.unsafe_seed=0",
        "--set",
        "rounds=1",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "Privacy. NOT PRIVATE" in paragraph(result.output)


def test_the_default_folder_tells_what_is_in_it_and_each_prototype_is_shown(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config.parent)
    prototypes = 'prototypes=["mlp", {name = "mlp", features = 8}]'
    words = [
        "run",
        config.name,
        "--set",
        "method=fedavg",
        "--set",
        "rounds=1",
        "--set",
        "seed=7",
        "--set",
        prototypes,
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert (config.parent / "runs" / "tiny-fedavg-seed7" / STATE_FILE).is_file()
    assert re.search(r"^  mlp: \d+\.\d %$", result.output, re.MULTILINE)
    assert re.search(r"^  mlp\(features=8\): \d+\.\d %$", result.output, re.MULTILINE)
    assert "Nothing was sent under noise. Models are not protected." in paragraph(
        result.output
    )


def test_compare_makes_a_table_and_does_not_repeat_what_is_done(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (
        "compare",
        config,
        "--methods",
        "fedavg, fedaux",
        "--seeds",
        2,
        "--out",
        tmp_path / "out",
    )
    assert fedaux(monkeypatch, *words) == 0
    first = capsys.readouterr().out
    table = (tmp_path / "out" / "table.md").read_text()
    assert [
        line.split(" | ")[0] for line in table.splitlines() if line.startswith("| Fed")
    ] == ["| FedAvg", "| FedAUX"]
    assert "Privacy. " in first
    files = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "out" / "runs").rglob(STATE_FILE)
    }
    assert len(files) == 4
    assert fedaux(monkeypatch, *words) == 0
    assert files == {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "out" / "runs").rglob(STATE_FILE)
    }
    assert table == (tmp_path / "out" / "table.md").read_text()


def test_the_labelled_probe_is_named_as_such(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "prepare",
        config,
        "--set",
        "pretrain.epochs=1",
        "--set",
        "pretrain.batch_size=50",
        "--threads",
        1,
    )
    assert fedaux(monkeypatch, *words) == 0
    assert "Labelled probe" not in capsys.readouterr().out
    assert fedaux(monkeypatch, *words, "--probe") == 0
    found = paragraph(capsys.readouterr().out)
    assert "Labelled probe" in found
    assert "It chose nothing" in found
    for name in ("random", "pre-trained", "the records themselves"):
        assert name in found


def test_a_module_beside_the_config_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_digits.py").write_text(
        "from fedaux.data.sources import open_source\n\ndef load():\n    return "
        "open_source('digits')\n"
    )
    (tmp_path / "mine.toml").write_text(
        TINY_TOML.replace("clients = 3", 'clients = 3\nsource = "my_digits:load"')
    )
    assert (
        fedaux(
            monkeypatch,
            "run",
            "mine.toml",
            "--out",
            tmp_path / "out",
            "--set",
            "rounds=1",
        )
        == 0
    )
    assert (tmp_path / "out" / STATE_FILE).is_file()


def test_privacy_report_shows_what_was_spent_and_what_is_not_covered(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fedaux(monkeypatch, "run", config, "--out", tmp_path / "run") == 0
    capsys.readouterr()
    assert fedaux(monkeypatch, "privacy", "report", tmp_path / "run") == 0
    found = paragraph(capsys.readouterr().out)
    assert "The 3 of 3 clients that spent most" in found
    assert "client-002" in found
    assert (
        "Not covered: local models, their losses and training times are sent without "
        "differential privacy" in found
    )


def test_a_site_reads_its_own_account(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fedaux(monkeypatch, "run", config, "--out", tmp_path / "run") == 0
    capsys.readouterr()
    vault = tmp_path / "run" / "clients" / "client-001"
    assert fedaux(monkeypatch, "privacy", "report", "--vault", vault) == 0
    found = paragraph(capsys.readouterr().out)
    assert (
        "(releases: 1, rounds of private training: 0) costs at most ε = 1 at δ = "
        "1e-05" in found
    )
    assert (
        fedaux(
            monkeypatch,
            "privacy",
            "report",
            "--vault",
            tmp_path / "run" / "clients",
            "--json",
        )
        == 0
    )
    accounts = json.loads(capsys.readouterr().out)["accounts"]
    assert [round(one["epsilon"], 4) for one in accounts] == [1.0] * 3
    # found below it
    assert fedaux(monkeypatch, "privacy", "report", "--vault", tmp_path) == 0
    assert (
        fedaux(monkeypatch, "privacy", "report", "--vault", tmp_path / "nowhere") == 10
    )
    assert "there is no account below" in paragraph(capsys.readouterr().err)


def test_privacy_plan_draws_and_advises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "plan.svg"
    assert (
        fedaux(
            monkeypatch,
            "privacy",
            "plan",
            "--records",
            100,
            "--epsilon",
            1,
            "--held-out",
            2000,
            "--out",
            out,
        )
        == 0
    )
    found = paragraph(capsys.readouterr().out)
    assert "of the signal is kept" in found
    assert "one release cost a client ε = 1.47 together" in found
    assert "points in one secure sum" in found
    assert "To keep 90%: ε = " in found
    assert out.read_text().count('<polyline class="curve') == 3


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
    assert (
        fedaux(monkeypatch, "run", "own/model.toml", "--set", "rounds=1", "--json") == 0
    )


def test_json_is_one_object_and_nothing_else(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "run", "tiny.toml", "--out", "out", "--json") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    state = RunState.load(place / "out")
    assert found["accuracy"] == next(iter(state.history[-1].accuracy.values()))
    assert 0.999 < found["privacy"]["epsilon"] <= 1
    assert found["report"] == "out/report.html"
    assert "round 2/2: accuracy" in err  # people may watch

    for words, key in (
        (("resume", "out"), "curve"),
        (("report", "out"), "report"),
        (("privacy", "report", "out"), "statement"),
        (("prepare", "tiny.toml"), "extractors"),
        (("init", "text"), "files"),
        (("deploy", "init", "sites", "--site", "a"), "readme"),
        (("privacy", "plan", "--records", "100", "--epsilon", "1"), "kept"),
    ):
        assert fedaux(monkeypatch, *words, "--json") == 0
        assert key in json.loads(capsys.readouterr().out), words


def test_a_report_of_one_run_of_all_below_and_of_two(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("fedavg", "feddf"):
        assert fedaux(monkeypatch, "run", "tiny.toml", "--set", f"method={method}") == 0
    one, two = (Path("runs") / f"tiny-{method}-seed0" for method in ("fedavg", "feddf"))
    for words, where in (
        ((one,), one),
        (("runs",), Path("runs")),
        ((one, two, "--out", "both"), Path("both")),
    ):
        (place / where / "report.html").unlink(missing_ok=True)
        capsys.readouterr()
        assert fedaux(monkeypatch, "report", *words) == 0
        assert f"Report: {where / 'report.html'}" in capsys.readouterr().out
        assert ("side by side" in (place / where / "report.html").read_text()) == (
            where != one
        )

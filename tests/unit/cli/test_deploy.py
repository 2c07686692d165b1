"""`fedaux deploy`: what the commands write and print, and their exit codes."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.schema import Config
from helpers.commands import fedaux
from helpers.deployments import AWKWARD, deploy, unused_address


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text("rounds = 4\n[data]\nclients = 3\n")
    words = "deploy init here --site rome --site oslo --host fl.example.org --port 7000 --config my.toml"
    done = CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert done.exit_code == 0
    assert "here/README.md" in done.output
    assert Config.load("here/server/fedaux.toml").rounds == 4
    assert (
        "SERVER=fl.example.org:7000\n" in Path("here/sites/oslo/site.env").read_text()
    )
    done = CliRunner().invoke(app, ["deploy", "key", "site"], catch_exceptions=False)
    assert done.exit_code == 0
    assert Path("site/key.pub").is_file()
    assert "site/key.pub" in done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return deploy(tmp_path / AWKWARD)


@pytest.fixture
def site(folder: Path) -> Path:
    return folder / "sites" / "berlin"


def aim(site: Path, address: str) -> None:
    env = site / "site.env"
    env.write_text(env.read_text().replace("127.0.0.1:8443", address))


def test_a_site_with_problems_fails_and_goes_on_to_the_end(site: Path) -> None:
    aim(site, unused_address())
    (site / "key").chmod(0o644)
    (site / "vault").mkdir(exist_ok=True)
    (site / "vault" / "account.jsonl").write_text("damaged\n")
    done = CliRunner().invoke(
        app, ["deploy", "check", str(site)], catch_exceptions=False
    )
    assert done.exit_code == 1
    found = [
        line.split(":")[0].split(maxsplit=1)
        for line in done.output.splitlines()
        if line.startswith(("ok", "problem", "unknown", "warning"))
    ]
    assert [name for mark, name in found if mark == "problem"] == [
        "key's secrecy",
        "server",
        "account",
    ]
    assert [name for mark, name in found if mark == "unknown"] == [
        "clock",
        "registered",
    ]
    assert ["ok", "sends"] in found
    assert len(found) == 16
    assert done.output.count("→") == 3


def test_a_source_beside_the_settings_is_found(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    module = "import numpy as np\nfrom fedaux.data.records import Corpus, Records\n"
    body = "def read():\n    return Corpus(Records(np.zeros((3, 2)), np.array([0, 1, 1])))\n"
    (site / "deploy_check_source.py").write_text(module + body)
    settings = site / "site.toml"
    settings.write_text(
        settings.read_text().replace(
            'source = "digits"', 'source = "deploy_check_source:read"'
        )
    )
    aim(site, unused_address())
    done = CliRunner().invoke(
        app, ["deploy", "check", str(site)], catch_exceptions=False
    )
    assert "3 records of 2 of 10 classes" in done.output


def test_json_of_a_check_with_problems(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "deploy", "init", "sites", "--site", "a") == 0
    capsys.readouterr()
    # no server is up
    assert fedaux(monkeypatch, "deploy", "check", "sites/sites/a", "--json") == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert any(one["ok"] is False for one in findings)


def test_status_says_what_is_known_and_ends_with_one_if_something_is_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = folder / "server" / "server.env"
    env.write_text(env.read_text().replace("127.0.0.1:8443", unused_address()))
    monkeypatch.chdir(folder / "server")
    # no terminal: once
    shown = CliRunner().invoke(app, ["deploy", "status"], catch_exceptions=False)
    assert shown.exit_code == 1
    assert "run  none yet" in shown.output
    printed = CliRunner().invoke(
        app, ["deploy", "status", "--json"], catch_exceptions=False
    )
    assert printed.exit_code == 1
    table = json.loads(printed.stdout)
    assert (table["state"], table["link"], len(table["problems"])) == ("none", False, 1)
    monkeypatch.setattr("fedaux.deploy.link.ControlLink.check", lambda self: None)
    monkeypatch.setattr("fedaux.deploy.link.ControlLink.nodes", lambda self: [])
    monkeypatch.setattr("fedaux.deploy.link.ControlLink.last_run", lambda self: None)
    assert (
        CliRunner().invoke(app, ["deploy", "status", str(folder), "--once"]).exit_code
        == 0
    )

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.methods import METHODS

runner = CliRunner()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(
        "rounds = 5\nhead_only = true\n[data]\nclients = 10\n[aux]\nfraction = 0.5\n"
    )
    return path


def test_it_says_where_its_figures_are_from(config: Path) -> None:
    found = runner.invoke(app, ["advise", str(config)])
    assert found.exit_code == 0, found.output
    assert (
        "Your setting: heads on a frozen extractor, 10 clients of about 72 records"
        in found.output
    )
    assert "Nearest measured:" in found.output
    assert "docs/" in found.output


def test_json_has_the_rows_best_first(config: Path) -> None:
    found = runner.invoke(app, ["advise", str(config), "--json", "--keep-sums"])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["methods"]
    accuracies = [row["accuracy"] for row in rows]
    assert accuracies == sorted(accuracies, reverse=True)
    assert all("sums of features" not in row["needs"] for row in rows)


def test_it_begins_with_one_recommendation_and_its_command(config: Path) -> None:
    found = runner.invoke(
        app, ["advise", str(config), "--keep-sums", "--set", "privacy.epsilon=1"]
    )
    assert found.exit_code == 0, found.output
    first, command, *_ = found.output.splitlines()
    assert first.startswith("Take ")
    assert f"fedaux run {config} --set method=" in command.replace("\n", "")
    assert "┃" not in found.output
    assert "┃" in runner.invoke(app, ["advise", str(config), "--table"]).output


def test_every_method_is_explained() -> None:
    found = runner.invoke(app, ["methods", "--json"])
    assert found.exit_code == 0, found.output
    rows = {row["name"]: row for row in json.loads(found.stdout)}
    assert set(rows) == {name for name in METHODS if not name.endswith("+p")}
    assert all(all(row.values()) for row in rows.values())
    assert rows["fedaux"]["protected"] == "noisy sums, under ε"
    assert "control variate" in rows["scaffold"]["leaves"]
    assert rows["ridge"]["protected"] == "nothing"

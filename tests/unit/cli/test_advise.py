from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaux.cli import app

runner = CliRunner()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text("rounds = 5\nhead_only = true\n[data]\nclients = 10\n[aux]\nfraction = 0.5\n")
    return path


def test_it_says_where_its_figures_are_from(config: Path) -> None:
    found = runner.invoke(app, ["advise", str(config)])
    assert found.exit_code == 0, found.output
    assert "Your setting: heads on a frozen extractor, 10 clients of about 72 records" in found.output
    assert "Nearest measured:" in found.output
    assert "docs/" in found.output


def test_json_has_the_rows_best_first(config: Path) -> None:
    found = runner.invoke(app, ["advise", str(config), "--json", "--keep-sums"])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["methods"]
    accuracies = [row["accuracy"] for row in rows]
    assert accuracies == sorted(accuracies, reverse=True)
    assert all("sums of features" not in row["needs"] for row in rows)

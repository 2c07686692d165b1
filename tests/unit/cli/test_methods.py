from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.methods import METHODS

runner = CliRunner()


def test_every_method_is_explained() -> None:
    found = runner.invoke(app, ["methods", "--json"])
    assert found.exit_code == 0, found.output
    rows = {row["name"]: row for row in json.loads(found.stdout)}
    assert set(rows) == {name for name in METHODS if not name.endswith("+p")}
    assert all(all(row.values()) for row in rows.values())
    assert rows["fedaux"]["protected"] == "noisy sums, under ε"
    assert "control variate" in rows["scaffold"]["leaves"]
    assert rows["ridge"]["protected"] == "nothing"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_name_is_never_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = runner.invoke(app, ["methods"])
    first_cells = {
        line.split("│")[1].strip()
        for line in found.output.splitlines()
        if line.startswith("│")
    }
    assert first_cells - {""} == {name for name in METHODS if not name.endswith("+p")}
    assert "…" not in found.output

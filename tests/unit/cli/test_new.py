"""`fedaux new`."""

import json
from pathlib import Path

import pytest

from helpers.commands import fedaux


def test_new_says_what_it_wrote_and_what_to_do_next(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "new", "clinic") == 0
    assert "fedaux run clinic/fedaux.toml" in capsys.readouterr().out
    assert (place / "clinic" / "clinic.py").is_file()
    assert fedaux(monkeypatch, "new", "clinic") == 5
    assert fedaux(monkeypatch, "new", "other", "--json") == 0
    assert "other/pyproject.toml" in json.loads(capsys.readouterr().out)["files"]

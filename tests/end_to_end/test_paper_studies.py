"""Every study of the paper, as `fedaux study NAME` runs it without any download."""

import json
from pathlib import Path

import pytest

from fedaux.sweeps.paper_studies import STUDIES
from helpers.commands import fedaux

FILES = {"leakage": "leakage.md", "cost": "costs.md", "toys": "toys.md"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")  # studies share extractors


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs(
    name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(cache))
    assert fedaux(monkeypatch, "study", name, "--out", tmp_path / name, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == str(tmp_path / name)
    if not STUDIES[name].alone:
        assert len(found["arms"]) == len(STUDIES[name].sweep("smoke").arms)
        assert (tmp_path / name / "report.html").is_file()
    if name in FILES:
        assert (tmp_path / name / FILES[name]).read_text().startswith("|" if name != "toys" else "Iris")
    if name == "leakage":
        assert len(list((tmp_path / name).glob("leakage-*.png"))) == len(found["arms"])

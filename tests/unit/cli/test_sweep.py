"""`fedaux compare`, `sweep` and `study`: what is refused before anything runs, and the list of studies."""

import json
from pathlib import Path

import pytest

from fedaux.sweeps.study import studies
from helpers.commands import fedaux, paragraph


def test_compare_refuses_a_method_that_is_none(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "compare", config, "--methods", "fedaux,fedvag") == 3
    assert "unknown method 'fedvag' (did you mean 'fedavg'?)" in paragraph(capsys.readouterr().err)


def test_the_list_of_studies_for_scripts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedaux(monkeypatch, "study", "--list", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == list(studies())


def test_an_unknown_study_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "study", "privcy") == 3
    assert "unknown study 'privcy' (did you mean 'privacy'?)" in paragraph(capsys.readouterr().err)


def test_a_wrong_sweep_is_one_paragraph_and_leaves_no_folder(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"{config.read_text()}[sweep]\nrounds = [1, 0]\n")
    assert fedaux(monkeypatch, "sweep", config, "--out", "out") == 3
    err = capsys.readouterr().err
    assert "the sweep cannot have an arm with rounds=0: rounds must be at least 1" in paragraph(err)
    assert len(err.strip().splitlines()) == 1
    assert not (config.parent / "out").exists()

"""`python -m studies`: what is refused before anything runs, and the list."""

import json
from pathlib import Path

import pytest
from studies.paper import STUDIES

from fedaux.core.errors import Exit
from helpers.commands import paragraph, studies


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["privcy"], "the study 'privcy': it is unknown (did you mean 'privacy'?)"),
        (["heterogenity"], "did you mean 'heterogeneity'?"),
        (["privacy", "--scale", "gpu"], "the scale 'gpu': it is unknown"),
        (
            ["privacy", "--scale", "paper"],
            "needs FEDAUX_DATA, a folder with the official files",
        ),
        (
            ["linear", "--tuned", "a", "--preset", "paper"],
            "Use one of them",
        ),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_wrong_call_is_one_paragraph_and_leaves_no_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    fragment: str,
) -> None:
    monkeypatch.delenv("FEDAUX_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert studies(monkeypatch, *words, "--out", "out") == Exit.SETTINGS
    err = capsys.readouterr().err
    assert fragment in paragraph(err)
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_list_for_scripts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert studies(monkeypatch, "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == list(STUDIES)

"""`fedaux compare`, `sweep`, `study` and `tune`: what is refused before anything runs,
and the list of studies.
"""

import json
from pathlib import Path

import pytest

from fedaux.core.errors import Exit
from fedaux.sweeps.paper_studies import STUDIES
from helpers.commands import fedaux, paragraph


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (
            ["compare", "tiny.toml", "--methods", "fedaux,fedvag"],
            "unknown method 'fedvag' (did you mean 'fedavg'?)",
        ),
        (["study", "privcy"], "unknown study 'privcy' (did you mean 'privacy'?)"),
        (["study", "privacy", "--scale", "gpu"], "unknown scale 'gpu'"),
        (
            ["study", "privacy", "--scale", "paper"],
            "needs FEDAUX_DATA, a folder with the official files",
        ),
        (
            ["sweep", "grid.toml"],
            "the sweep cannot have an arm with rounds=0: rounds must be at least 1",
        ),
        (["tune", "tiny.toml", "--methods", "fedavg,fedvag"], "did you mean 'fedavg'?"),
        (
            ["tune", "tiny.toml", "--set", "tune.local.lrr=[1]"],
            "did you mean 'local.lr'?",
        ),
        (
            ["tune", "tiny.toml", "--set", "tune.budget=0"],
            "the budget must be at least 1",
        ),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_wrong_plan_is_one_paragraph_and_leaves_no_folder(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    fragment: str,
) -> None:
    monkeypatch.delenv("FEDAUX_DATA", raising=False)
    Path("grid.toml").write_text(f"{config.read_text()}[sweep]\nrounds = [1, 0]\n")
    assert fedaux(monkeypatch, *words, "--out", "out") == Exit.SETTINGS
    err = capsys.readouterr().err
    assert fragment in paragraph(err)
    assert len(err.strip().splitlines()) == 1
    assert not (config.parent / "out").exists()


def test_the_list_of_studies_for_scripts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "study", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == list(STUDIES)

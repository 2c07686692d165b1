"""`fedaux compare`, `sweep` and `tune`: what is refused before anything runs."""

from pathlib import Path

import pytest

from fedaux.core.errors import Exit
from helpers.commands import fedaux, paragraph


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (
            ["compare", "tiny.toml", "--methods", "fedaux,fedvag"],
            "the method 'fedvag': it is unknown (did you mean 'fedavg'?)",
        ),
        (
            ["sweep", "grid.toml"],
            "the sweep cannot have an arm with rounds=0. Cannot use these settings: rounds must be at least 1",
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
    Path("grid.toml").write_text(f"{config.read_text()}[sweep]\nrounds = [1, 0]\n")
    assert fedaux(monkeypatch, *words, "--out", "out") == Exit.SETTINGS
    err = capsys.readouterr().err
    assert fragment in paragraph(err)
    assert len(err.strip().splitlines()) == 1
    assert not (config.parent / "out").exists()

"""The table of studies: every study makes a valid sweep at every scale, and says what
it lacks.
"""

from pathlib import Path

import pytest
from studies.paper import SCALES, STUDIES

from fedaux.config.parsing import ConfigError

SWEEPS = [name for name, study in STUDIES.items() if not study.alone]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "studies.md"


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SWEEPS)
def test_a_study_is_a_valid_sweep(
    name: str, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDAUX_DATA", "/data")
    sweep = STUDIES[name].sweep(scale)
    assert len({arm.config.hash for arm in sweep.arms}) == len(sweep.arms) >= 2
    assert sweep.seeds == (1 if scale == "smoke" else 3)
    assert {arm.config.privacy.unsafe_seed for arm in sweep.arms} == {-1}
    for arm in sweep.arms:
        data, aux = arm.config.data, arm.config.aux
        assert data.path.startswith("/data") == (scale == "paper")
        if scale == "smoke":
            assert data.source.startswith(("digits", "studies.smoke_data:"))
            assert aux.source.startswith("studies.smoke_data:") or not aux.source
        if scale == "paper":  # ruling m: its own settings, and the last round counts
            assert arm.config.local.lr == (1e-5 if name == "text" else 1e-3)
            assert arm.config.head_init == "random"


def test_every_study_is_on_the_page_and_asks_a_question() -> None:
    for name, study in STUDIES.items():
        assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
        assert study.question.endswith("?")


def test_settings_of_the_command_win() -> None:
    sweep = STUDIES["linear"].sweep("smoke", ["data.alpha=0.5", "sweep.seeds=2"])
    assert (sweep.seeds, list(sweep.axes), sweep.base.data.alpha) == (
        2,
        ["method"],
        0.5,
    )


def test_a_scale_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDAUX_DATA", raising=False)
    with pytest.raises(ConfigError, match="needs FEDAUX_DATA"):
        STUDIES["linear"].sweep("paper")
    with pytest.raises(ConfigError, match="the scale 'cpuu': it is unknown"):
        STUDIES["linear"].sweep("cpuu")

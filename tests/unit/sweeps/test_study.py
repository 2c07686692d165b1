"""The studies that come with the package: each can be run as it is, and on other data."""

from pathlib import Path

import pytest

from fedaux.sweeps.engine import Sweep
from fedaux.sweeps.study import studies

PAGE = Path(__file__).resolve().parents[3] / "docs" / "studies.md"
NAMES = ["auxiliary", "heterogeneity", "one-shot", "participation", "privacy", "prototypes"]


def test_all_of_them_are_there() -> None:
    assert list(studies()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_is_needs_no_download_and_fits_in_an_evening(name: str) -> None:
    sweep = Sweep.load(studies()[name].path)
    assert (sweep.title, sweep.about) == (studies()[name].title, studies()[name].about)
    assert 0 < sweep.minutes <= 30
    assert sweep.seeds >= 3
    assert len(sweep.axes) == 2
    assert {arm.config.data.source for arm in sweep.arms} == {"digits"}
    assert {arm.config.privacy.unsafe_seed for arm in sweep.arms} == {-1}
    assert len({arm.config.hash for arm in sweep.arms}) == len(sweep.arms)


def test_the_page_names_them_all() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name}`" in text

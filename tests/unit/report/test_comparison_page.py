"""The page of several runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.report.arms import find_runs, group
from fedaux.report.comparison_page import write_comparison, write_report
from helpers.pages import Page
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for method in ("fedavg", "fedaux"):
        for seed in (0, 1):
            finished_run(folder / "runs" / f"{method}-{seed}", replace(TINY_CONFIG, method=method, seed=seed))
    return folder


def test_a_comparison_has_everything(several: Path) -> None:
    text = write_comparison(several, "Two methods", group(find_runs([several]))).read_text()
    found = Page(text)
    assert found.sections == [
        "accuracy",
        "target",
        "split",
        "classes",
        "teachers",
        "privacy",
        "costs",
        "runs",
        "settings",
    ]
    assert not found.loads
    assert text.count("runs/fedaux-1") == 1
    assert "Bands are ± one standard deviation" in text
    assert "2 seeds" in text
    assert "seed(s)" not in text


def test_a_single_run_has_a_page_of_its_own(several: Path) -> None:
    path = write_report(str(several / "runs" / "fedavg-0"))
    assert path == several / "runs" / "fedavg-0" / "report.html"
    assert "learning" in Page(path.read_text()).sections


def test_runs_below_a_folder_stand_side_by_side_in_it(several: Path) -> None:
    path = write_report(several)
    assert path == several / "report.html"
    assert "4 runs side by side" in path.read_text()


def test_several_folders_or_another_place(several: Path, tmp_path: Path) -> None:
    one, other = several / "runs" / "fedavg-0", several / "runs" / "fedaux-0"
    assert write_report(one, other, out=tmp_path / "both") == tmp_path / "both" / "report.html"
    alone = write_report(one, out=tmp_path / "alone")
    assert alone == tmp_path / "alone" / "report.html"
    assert "accuracy" in Page(alone.read_text()).sections


def test_three_seeds_are_compared_and_a_target_is_what_was_asked_for(tmp_path: Path) -> None:
    for method in ("fedavg", "fedaux"):
        for seed in range(3):
            finished_run(tmp_path / f"{method}-{seed}", replace(TINY_CONFIG, method=method, seed=seed))
    path = write_report(tmp_path, target=0.99, formats=["svg", "pdf"])
    text = path.read_text()
    assert Page(text).sections[:3] == ["accuracy", "differences", "target"]
    assert "at least 99 %" in text
    assert text.count("never") == 2
    for name in ("curves", "bars", "split", "classes"):
        assert (tmp_path / f"{name}.svg").is_file()
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")

"""One page for one run, one page for several."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.report.write import write_report
from helpers.pages import Page
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return tuple(
        finished_run(tmp_path / method, replace(TINY_CONFIG, method=method)).folder for method in ("fedavg", "feddf")
    )


def test_a_single_run_has_a_page_of_its_own(runs: tuple[Path, Path]) -> None:
    path = write_report(str(runs[0]))
    assert path == runs[0] / "report.html"
    assert "learning" in Page(path.read_text()).sections


def test_runs_below_a_folder_stand_side_by_side_in_it(runs: tuple[Path, Path]) -> None:
    path = write_report(runs[0].parent)
    assert path == runs[0].parent / "report.html"
    assert "2 runs side by side" in path.read_text()


def test_several_folders_or_another_place(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert write_report(*runs, out=tmp_path / "both") == tmp_path / "both" / "report.html"
    alone = write_report(runs[0], out=tmp_path / "alone")
    assert alone == tmp_path / "alone" / "report.html"
    assert "accuracy" in Page(alone.read_text()).sections

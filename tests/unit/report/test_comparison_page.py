"""The page of several runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.report.arms import find_runs, group
from fedaux.report.comparison_page import write_comparison
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
    assert found.sections == ["accuracy", "split", "classes", "teachers", "privacy", "costs", "runs", "settings"]
    assert not found.loads
    assert text.count("runs/fedaux-1") == 1
    assert "band ± one standard deviation" in text

"""The page of a whole run: complete, self-contained and true."""

import re
from pathlib import Path

import pytest

from fedaux import Config, run
from fedaux.report.reported_run import load_run
from fedaux.report.run_page import write_run_report
from fedaux.server.result import FinishedRun
from helpers.pages import Page
from helpers.tiny import TINY

IMAGES = {**TINY, "prototypes": ["cnn"], "data": {"clients": 3, "source": "digits"}}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    folder = tmp_path_factory.mktemp("done")
    return run(Config.from_dict(IMAGES), folder / "run", cache=folder / "cache")


@pytest.fixture(scope="module")
def page(done: FinishedRun) -> str:
    return write_run_report(done.folder, done.folder.parent / "cache").read_text()


def test_it_has_everything_and_loads_nothing(page: str) -> None:
    found = Page(page)
    wanted = [
        "learning",
        "split",
        "classes",
        "clients",
        "teachers",
        "top_examples",
        "privacy",
        "costs",
        "settings",
    ]
    assert found.sections == wanted
    assert all(one.startswith("data:image/png;base64,") for one in found.loads)
    assert "script" not in found.tags
    assert not re.search(r"url\(|@import|https?://", page)
    assert len(page) < 400_000
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_its_figures_are_those_of_the_run(page: str, done: FinishedRun) -> None:
    assert f"<b>{100 * done.accuracy:.1f} %</b>" in page
    assert done.statement.replace("'", "&#39;") in page
    assert "clients = 3" in page
    for client in ("client-000", "client-002"):
        assert page.count(client) >= 3


def test_favourites_of_one_class_clients_are_of_their_class(tmp_path: Path) -> None:
    """With hardly any noise, the public digits that score highest are mostly the
    client's own digit.
    """
    config = Config.from_dict(
        {
            **IMAGES,
            "rounds": 1,
            "data": {"clients": 10, "alpha": 1e-4},
            "privacy": {"epsilon": 50.0},
            "aux": {},
        },
        ["head_only = true"],
    )
    result = run(config, tmp_path / "run", cache=tmp_path / "cache")
    facts = load_run(result.folder, tmp_path / "cache")
    assert len(facts.top_examples) == 10
    assert all(one.image for one in facts.top_examples)
    # clients of the same digit may agree
    assert len({one.image for one in facts.top_examples}) >= 8

"""The page of a run and of several: complete, self-contained, true, and safe to open."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from fedaux.algorithms.results import Result
from fedaux.algorithms.run_state import RunState, StateError
from fedaux.core.messages import Failure
from fedaux.data.federated import open_data
from fedaux.report.arms import find_runs, group
from fedaux.report.comparison_page import write_comparison
from fedaux.report.facts import expected_accuracy, image_strip, load_facts, tones
from fedaux.report.run_page import write_run_report
from helpers.tables import TINY

IMAGES = {**TINY, "prototypes": ["cnn"], "data": {"clients": 3, "source": "digits"}}


class Page(HTMLParser):
    """Sections, and everything that a page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.tags.append(tag)
        if tag == "section":
            self.sections.append(facts["id"] or "")
        if tag in ("script", "link", "img", "iframe", "object"):
            self.loads.append(facts.get("src") or facts.get("href") or tag)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("done")
    return run(Config.from_dict(IMAGES), folder / "run", cache=folder / "cache")


@pytest.fixture(scope="module")
def page(done: Result) -> str:
    return write_run_report(done.folder, done.folder.parent / "cache").read_text()


def test_it_has_everything_and_loads_nothing(page: str) -> None:
    found = Page(page)
    wanted = ["learning", "split", "classes", "clients", "teachers", "top_examples", "privacy", "costs", "settings"]
    assert found.sections == wanted
    assert all(one.startswith("data:image/png;base64,") for one in found.loads)
    assert "script" not in found.tags
    assert not re.search(r"url\(|@import|https?://", page)
    assert len(page) < 400_000
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_its_figures_are_those_of_the_run(page: str, done: Result) -> None:
    assert f"<b>{100 * done.accuracy:.1f} %</b>" in page
    assert done.privacy.replace("'", "&#39;") in page
    assert "clients = 3" in page
    for client in ("client-000", "client-002"):
        assert page.count(client) >= 3


def test_real_sites_have_no_split_and_numbers_no_favourites(done: Result, tmp_path: Path) -> None:
    result = run(Config.from_dict({**TINY, "method": "fedavg"}), tmp_path / "run", cache=tmp_path / "cache")
    text = write_run_report(result.folder, tmp_path / "cache").read_text()
    assert Page(text).sections == ["learning", "split", "classes", "clients", "privacy", "costs", "settings"]
    assert "nothing was released under differential privacy" in text


def test_without_its_data_a_run_still_has_a_page(done: Result, tmp_path: Path) -> None:
    config = replace(done.state.config, data=replace(done.state.config.data, source="npz", path="gone.npz"))
    replace(done.state, config=config).save(tmp_path)
    text = write_run_report(tmp_path).read_text()
    assert Page(text).sections == ["learning", "classes", "clients", "teachers", "privacy", "costs", "settings"]
    assert "Data were not opened: gone.npz is missing" in text


def test_whatever_a_client_wrote_cannot_act(done: Result, tmp_path: Path) -> None:
    evil = "<script>alert('x')</script><img src=http://evil>"
    last = replace(done.state.history[-1], failures=(Failure("client-001", evil),))
    replace(done.state, history=(*done.state.history[:-1], last)).save(tmp_path)
    text = write_run_report(tmp_path, done.folder.parent / "cache").read_text()
    assert "failures" in Page(text).sections
    assert "script" not in Page(text).tags
    assert "&lt;script&gt;" in text


def test_a_run_without_a_round_has_no_page(done: Result, tmp_path: Path) -> None:
    replace(done.state, round=0, history=()).save(tmp_path)
    with pytest.raises(StateError, match="go on with `fedaux resume"):
        write_run_report(tmp_path)


def test_expected_accuracy_is_that_of_the_clients_mix() -> None:
    counts, recall = np.array([[30, 10], [0, 5], [0, 0]]), np.array([0.9, 0.5])
    assert expected_accuracy(counts, recall) == pytest.approx([0.8, 0.5, 0.0])
    assert expected_accuracy(counts, np.array([0.9, np.nan]))[1] == 0


def test_favourites_of_one_class_clients_are_of_their_class(tmp_path: Path) -> None:
    """With hardly any noise, the public digits that score highest are mostly the client's own digit."""
    config = Config.from_dict(
        {**IMAGES, "rounds": 1, "data": {"clients": 10, "alpha": 1e-4}, "privacy": {"epsilon": 50.0}, "aux": {}},
        ["head_only = true"],
    )
    result = run(config, tmp_path / "run", cache=tmp_path / "cache")
    facts = load_facts(result.folder, tmp_path / "cache")
    assert len(facts.top_examples) == 10
    assert all(one.image for one in facts.top_examples)
    assert len({one.image for one in facts.top_examples}) >= 8  # clients of the same digit may agree


def test_counts_and_recall(done: Result) -> None:
    facts = load_facts(done.folder, done.folder.parent / "cache")
    assert (facts.counts == open_data(done.state.config).counts()).all()
    table = facts.confusion
    assert facts.recall == pytest.approx(np.diag(table) / table.sum(axis=1), nan_ok=True)


def test_a_strip_is_a_picture_of_all_images() -> None:
    import base64
    import io

    from PIL import Image

    for channels in (1, 3):
        images = np.random.default_rng(0).integers(0, 255, (4, 8, 8, channels)).astype(np.uint8)
        picture = Image.open(io.BytesIO(base64.b64decode(image_strip(images).split(",")[1])))
        assert picture.size == (4 * 48 + 3 * 3, 48)


def test_pretrained_methods_share_a_colour() -> None:
    found = tones(["FedAVG", "FedAVG+P", "FedDF+P", "FedAUX"])
    assert found["FedAVG"] == found["FedAVG+P"] != found["FedDF+P"]
    assert found["FedAUX"] == "hero"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for method in ("fedavg", "fedaux"):
        for seed in (0, 1):
            config = Config.from_dict({**TINY, "method": method, "seed": seed})
            run(config, folder / "runs" / f"{method}-{seed}", cache=folder / "cache")
    return folder


def test_runs_that_differ_in_their_seed_are_one_arm(several: Path) -> None:
    arms = group(find_runs([several]))
    assert [(arm.label, arm.curves.shape) for arm in arms] == [("FedAUX", (2, 2)), ("FedAVG", (2, 2))]
    assert arms[0].curves[1].tolist() == Result(RunState.load(several / "runs" / "fedaux-1"), several).curve


def test_a_comparison_has_everything(several: Path) -> None:
    text = write_comparison(several, "Two methods", group(find_runs([several]))).read_text()
    found = Page(text)
    assert found.sections == ["accuracy", "split", "classes", "teachers", "privacy", "costs", "runs", "settings"]
    assert not found.loads
    assert text.count("runs/fedaux-1") == 1
    assert "band ± one standard deviation" in text


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="holds no run"):
        find_runs([tmp_path])

"""The page of a run: its figures, what is left out where it is not known, and nothing
that a client wrote can act.
"""

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux.config.sections import AuxConfig
from fedaux.core.failures import Failure
from fedaux.data.federated import open_data
from fedaux.report.reported_run import (
    confusion,
    expected_accuracy,
    image_strip,
    load_run,
    may_show,
    recall,
)
from fedaux.report.run_page import write_run_report
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState, StateError
from fedaux.server.run_writer import RunWriter
from helpers.pages import Page
from helpers.runs import finished_run
from helpers.tiny import CNN, TINY_CONFIG


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return finished_run(
        tmp_path_factory.mktemp("done"),
        replace(TINY_CONFIG, method="feddf", prototypes=(CNN,)),
    )


def page_of(state: RunState, folder: Path) -> str:
    RunWriter(folder).save(state)
    return write_run_report(folder).read_text()


def test_its_figures_are_those_of_the_run(done: FinishedRun) -> None:
    text = write_run_report(done.folder).read_text()
    page = Page(text)
    assert page.sections == [
        "learning",
        "split",
        "classes",
        "clients",
        "teachers",
        "privacy",
        "costs",
        "settings",
    ]
    assert page.loads == []
    assert f"<b>{100 * done.accuracy:.1f} %</b>" in text
    assert "always the commonest class" in text
    assert "nothing was released under differential privacy" in text
    assert "<b>6 s</b>" in text  # two rounds of three seconds
    assert "6 kB to clients and 4 kB from them" in text
    assert "clients = 3" in text
    assert "failed at least once" not in text
    assert all(text.count(client) >= 3 for client in ("client-000", "client-002"))


def test_a_real_site_keeps_its_split_to_itself(
    done: FinishedRun, tmp_path: Path
) -> None:
    sites = replace(
        done.state.config.federation, sites=("client-000", "client-001", "client-002")
    )
    config = replace(
        done.state.config,
        data=replace(done.state.config.data, partition="own"),
        federation=sites,
    )
    assert (
        "split"
        not in Page(page_of(replace(done.state, config=config), tmp_path)).sections
    )


def test_failures_are_counted_and_listed_as_text(
    done: FinishedRun, tmp_path: Path
) -> None:
    evil = "<script>alert('x')</script><img src=http://evil>"
    first = replace(done.state.history[0], failures=(Failure("client-001", evil),))
    text = page_of(
        replace(done.state, history=(first, *done.state.history[1:])), tmp_path
    )
    assert Page(text).sections[-2:] == ["failures", "settings"]
    assert "client failed at least once" in text
    assert "script" not in Page(text).tags
    assert "&lt;script&gt;" in text


def test_without_its_data_a_run_still_has_a_page(
    done: FinishedRun, tmp_path: Path
) -> None:
    config = replace(
        done.state.config,
        data=replace(done.state.config.data, source="npz", path="gone.npz"),
    )
    text = page_of(replace(done.state, config=config), tmp_path)
    assert Page(text).sections == [
        "learning",
        "classes",
        "clients",
        "teachers",
        "privacy",
        "costs",
        "settings",
    ]
    assert "Data were not opened: gone.npz is missing" in text
    facts = load_run(tmp_path)
    assert facts.counts is None
    # by number, as the confusion matrix has them
    assert facts.classes == tuple("0123456789")


def test_a_run_without_a_round_has_no_page(done: FinishedRun, tmp_path: Path) -> None:
    with pytest.raises(
        StateError, match="has not finished a round yet; continue with `fedaux resume"
    ):
        page_of(replace(done.state, round=0, history=()), tmp_path)


def test_a_collapsed_model_is_a_warning_above_everything_else(
    done: FinishedRun, tmp_path: Path
) -> None:
    label = next(iter(done.state.weights))
    last = replace(
        done.state.history[-1], confusion={label: [[36, *[0] * 9] for _ in range(10)]}
    )
    text = page_of(
        replace(done.state, history=(*done.state.history[:-1], last)), tmp_path
    )
    assert 'role="alert"' in text
    assert text.index("does not beat always answering") < text.index("<nav>")
    good = replace(last, confusion={label: (36 * np.eye(10, dtype=int)).tolist()})
    assert 'role="alert"' not in page_of(
        replace(done.state, history=(*done.state.history[:-1], good)), tmp_path
    )


def test_expected_accuracy_is_that_of_the_clients_mix() -> None:
    counts, recalls = np.array([[30, 10], [0, 5], [0, 0]]), np.array([0.9, 0.5])
    assert expected_accuracy(counts, recalls) == pytest.approx([0.8, 0.5, 0.0])
    assert expected_accuracy(counts, np.array([0.9, np.nan]))[1] == 0


def test_counts_and_recalls_of_all_prototypes_together(
    result: FinishedRun, tmp_path: Path
) -> None:
    config = replace(result.state.config, method="feddf")  # a method without scores
    RunWriter(tmp_path).save(replace(result.state, config=config, releases={}))
    facts = load_run(tmp_path)
    assert (facts.counts == open_data(config).counts()).all()
    matrices = [
        np.array(matrix)
        for matrix in (facts.state.history[-1].confusion or {}).values()
    ]
    assert len(matrices) == 2
    table = confusion(facts.state)
    assert (table == matrices[0] + matrices[1]).all()
    assert recall(facts.state) == pytest.approx(
        np.diag(table) / table.sum(axis=1), nan_ok=True
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_a_strip_is_a_picture_of_all_images(channels: int) -> None:
    images = (
        np.random.default_rng(0).integers(0, 255, (4, 8, 8, channels)).astype(np.uint8)
    )
    picture = Image.open(
        io.BytesIO(base64.b64decode(image_strip(images).split(",")[1]))
    )
    assert picture.size == (4 * 48 + 3 * 3, 48)
    pixels = np.asarray(picture).reshape(48, -1, channels)
    # enlarged without smoothing
    assert np.array_equal(pixels[::6, 51 : 51 + 48 : 6], images[1])


def test_records_are_shown_only_if_anyone_may_see_them() -> None:
    """Private images were shown as public examples where aux.path was data.path."""
    assert may_show(TINY_CONFIG)  # digits are published
    own = replace(TINY_CONFIG, aux=AuxConfig(source="images", path="public"))
    assert not may_show(own)
    assert may_show(replace(own, aux=replace(own.aux, public=True)))
    # held out
    assert not may_show(
        replace(
            TINY_CONFIG, data=replace(TINY_CONFIG.data, source="images", path="scans")
        )
    )

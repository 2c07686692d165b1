"""The page of a run: its figures, what is left out where it is not known, and nothing that a client wrote can act."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.core.messages import Failure
from fedaux.report.run_page import write_run_report
from fedaux.report.terminal import format_bytes
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import StateError
from fedaux.server.run_writer import RunWriter
from helpers.pages import Page
from helpers.runs import finished_run
from helpers.tiny import CNN, TINY_CONFIG


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return finished_run(tmp_path_factory.mktemp("done"), replace(TINY_CONFIG, method="feddf", prototypes=(CNN,)))


def test_its_figures_are_those_of_the_run(done: FinishedRun) -> None:
    text = write_run_report(done.folder).read_text()
    page = Page(text)
    assert page.sections == ["learning", "split", "classes", "clients", "teachers", "privacy", "costs", "settings"]
    assert page.loads == []
    assert f"<b>{100 * done.accuracy:.1f} %</b>" in text
    assert "nothing was released under differential privacy" in text
    assert "<b>6 s</b>" in text  # two rounds of three seconds
    assert f"<b>{format_bytes(2 * 5000)}</b>" in text  # both ways in both rounds
    assert "clients = 3" in text
    assert all(text.count(client) >= 3 for client in ("client-000", "client-002"))


def test_a_real_site_keeps_its_split_to_itself(done: FinishedRun, tmp_path: Path) -> None:
    sites = replace(done.state.config.federation, sites=("client-000", "client-001", "client-002"))
    config = replace(done.state.config, data=replace(done.state.config.data, partition="own"), federation=sites)
    RunWriter(tmp_path).save(replace(done.state, config=config))
    assert "split" not in Page(write_run_report(tmp_path).read_text()).sections


def test_failures_are_counted_and_listed(done: FinishedRun, tmp_path: Path) -> None:
    first = replace(done.state.history[0], failures=(Failure("client-001", "out of memory"),))
    RunWriter(tmp_path).save(replace(done.state, history=(first, *done.state.history[1:])))
    text = write_run_report(tmp_path).read_text()
    assert Page(text).sections[-2:] == ["failures", "settings"]
    assert "out of memory" in text


def test_without_its_data_a_run_still_has_a_page(done: FinishedRun, tmp_path: Path) -> None:
    config = replace(done.state.config, data=replace(done.state.config.data, source="npz", path="gone.npz"))
    RunWriter(tmp_path).save(replace(done.state, config=config))
    text = write_run_report(tmp_path).read_text()
    assert Page(text).sections == ["learning", "classes", "clients", "teachers", "privacy", "costs", "settings"]
    assert "Data were not opened: gone.npz is missing" in text


def test_whatever_a_client_wrote_cannot_act(done: FinishedRun, tmp_path: Path) -> None:
    evil = "<script>alert('x')</script><img src=http://evil>"
    last = replace(done.state.history[-1], failures=(Failure("client-001", evil),))
    RunWriter(tmp_path).save(replace(done.state, history=(*done.state.history[:-1], last)))
    text = write_run_report(tmp_path).read_text()
    assert "failures" in Page(text).sections
    assert "script" not in Page(text).tags
    assert "&lt;script&gt;" in text


def test_a_run_without_a_round_has_no_page(done: FinishedRun, tmp_path: Path) -> None:
    RunWriter(tmp_path).save(replace(done.state, round=0, history=()))
    with pytest.raises(StateError, match="continue with `fedaux resume"):
        write_run_report(tmp_path)


def test_a_collapsed_model_is_a_warning_above_everything_else(done: FinishedRun, tmp_path: Path) -> None:
    label = next(iter(done.state.weights))
    table = [[36, *[0] * 9] for _ in range(10)]
    last = replace(done.state.history[-1], confusion={label: table})
    RunWriter(tmp_path).save(replace(done.state, history=(*done.state.history[:-1], last)))
    text = write_run_report(tmp_path).read_text()
    assert 'role="alert"' in text
    assert text.index("does not beat always answering") < text.index("<nav>")
    good = replace(last, confusion={label: [[36 * (i == j) for j in range(10)] for i in range(10)]})
    RunWriter(tmp_path).save(replace(done.state, history=(*done.state.history[:-1], good)))
    assert 'role="alert"' not in write_run_report(tmp_path).read_text()

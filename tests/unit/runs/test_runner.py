"""What a folder holds, and the order of effects over a scripted federation; whole runs
are end to end.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedaux.cli.run import show_run
from fedaux.config.distillation import TeachersConfig
from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, FederationConfig
from fedaux.core.progress import (
    Notice,
    ProgressEvent,
    RoundFinished,
    RunStarted,
    report,
    report_to,
)
from fedaux.core.results import RoundResult
from fedaux.messages import TrainOrder
from fedaux.runs.callbacks import Callback
from fedaux.runs.folders import stored_state
from fedaux.runs.result import Result
from fedaux.runs.run_lock import LOCK_FILE, LockedError, RunLock
from fedaux.runs.runner import planner, progress_panel, run_over_regions
from fedaux.runs.session import run_in_folder, setting_line
from fedaux.server.loop import QuorumError
from fedaux.server.regions import REGIONS_FOLDER, RegionError
from fedaux.server.run_state import HISTORY, RunState
from helpers.runs import finished_run
from helpers.scripted import CONFIG, WIDE, Scripted, fails, make_server
from helpers.scripted import MLP as SMALL
from helpers.tiny import MLP, TINY_CONFIG

ROUND = RoundResult(1, {"mlp-0": 0.5}, {})


def test_a_round_is_saved_before_anybody_hears_of_it(tmp_path: Path) -> None:
    known_entries: list[tuple[str, int, int]] = []

    def note(who: str, round_: int) -> None:
        lines = (tmp_path / HISTORY).read_text().splitlines()
        known_entries.append((who, round_, len(lines)))
        assert RunState.load(tmp_path).round == round_

    class Listener(Callback):
        def on_round_end(self, state: RunState) -> None:
            note("callback", state.round)

    def on_progress(event: ProgressEvent) -> None:
        if isinstance(event, RoundFinished):
            note("progress", event.result.round)

    with report_to(on_progress):
        result = run_in_folder(tmp_path, make_server(), Scripted(), None, [Listener()])
    assert known_entries == [
        ("callback", 1, 1),
        ("progress", 1, 1),
        ("callback", 2, 2),
        ("progress", 2, 2),
    ]
    assert result.state.round == 2


def test_a_run_that_stops_ends_its_callbacks_and_goes_on_with_its_history(
    tmp_path: Path,
) -> None:
    class Listener(Callback):
        ended = 0

        def on_run_end(self) -> None:
            self.ended += 1

    listener, events = Listener(), list[ProgressEvent]()
    with pytest.raises(QuorumError):
        run_in_folder(
            tmp_path,
            make_server(),
            Scripted(dict.fromkeys("abcd", fails(TrainOrder, 2))),
            None,
            [listener],
        )
    assert listener.ended == 1
    state = stored_state(CONFIG, tmp_path)
    assert state is not None
    assert state.round == 1
    with report_to(events.append):
        run_in_folder(tmp_path, make_server(), Scripted(), state)
    (start,) = [event for event in events if isinstance(event, RunStarted)]
    assert (start.history, start.rounds) == (state.history, 2)
    assert [
        event.result.round for event in events if isinstance(event, RoundFinished)
    ] == [2]


def test_a_run_that_lost_its_folder_to_another_process_saves_nothing_more(
    tmp_path: Path,
) -> None:
    class Thief(Callback):
        def on_round_end(self, state: RunState) -> None:
            (tmp_path / LOCK_FILE).unlink()

    with (
        RunLock(tmp_path) as lock,
        pytest.raises(LockedError, match="taken over by another process"),
    ):
        run_in_folder(tmp_path, make_server(), Scripted(), None, [Thief()], lock=lock)
    assert RunState.load(tmp_path).round == 1


def test_a_folder_that_a_run_writes_to_is_no_place_for_another(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(LockedError):
        run_over_regions(TINY_CONFIG, tmp_path, 3)


@pytest.mark.parametrize("standing", [False, True])
def test_sites_that_leave_and_come_do_not_end_a_run_nor_change_the_prototypes_of_others(
    tmp_path: Path, standing: bool
) -> None:
    """A site that was taken out of federation.sites ended the run with a KeyError, and
    would have moved the others.
    """

    def config(*sites: str) -> Config:
        policy = replace(CONFIG.federation, sites=sites)
        data = DataConfig("npy", "records", partition="own", classes=("x", "y", "z"))
        teachers = replace(CONFIG.teachers, standing=standing)
        return replace(
            CONFIG,
            prototypes=(SMALL, WIDE),
            federation=policy,
            rounds=3,
            teachers=teachers,
            data=data,
        )

    sites = [("a", "b", "c", "d"), ("a", "c", "d"), ("e", "a", "c", "d")]
    for round_, names in enumerate(sites, 1):
        state = stored_state(config(*names), tmp_path)
        server = make_server(config(*names), state=state)
        state = run_in_folder(tmp_path, server, Scripted(), state, until=round_).state
        assert set(state.history[-1].client_metrics) == set(names)
    labels = {"a": SMALL.label, "b": WIDE.label, "c": SMALL.label, "d": WIDE.label}
    assert RunState.load(tmp_path).assignment == {**labels, "e": WIDE.label}
    assert set(state.releases) == set("abcde")


def test_regional_servers_are_told_of_the_end(tmp_path: Path) -> None:
    finished_run(tmp_path)
    events: list[ProgressEvent] = []
    result = run_over_regions(
        TINY_CONFIG, tmp_path, 3, on_progress=events.append, cache=tmp_path / "cache"
    )
    assert result.state.round == 2
    assert any(
        isinstance(event, Notice) and "3 regional servers" in event.text
        for event in events
    )
    (left,) = (tmp_path / REGIONS_FOLDER).iterdir()
    assert json.loads(left.read_text())["kind"] == "end"


@pytest.mark.parametrize(
    "settings",
    [
        {"teachers": TeachersConfig(standing=True)},
        {"method": "ridge"},
        {"head_init": "private-head"},
    ],
)
def test_regions_refuse_what_they_cannot_hand_on(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(RegionError, match="Leave --regions out"):
        run_over_regions(replace(TINY_CONFIG, **settings), tmp_path, 2)


def test_a_run_in_a_line() -> None:
    assert setting_line(TINY_CONFIG) == f"digits: 3 clients, α = 1, {MLP.label}, seed 0"
    data = replace(TINY_CONFIG.data, partition="own")
    sites = replace(
        TINY_CONFIG, data=data, federation=FederationConfig(sites=("a", "b"))
    )
    assert setting_line(sites) == f"digits: 2 clients, {MLP.label}, seed 0"


def test_a_plan_needs_an_embedding_scorer(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[privacy]\nscorer = "logistic"\n')
    with pytest.raises(
        ValueError,
        match="a plan needs the scorer class-embedding, not logistic",
    ):
        planner(tmp_path / "my.toml", 10, 1e-5, "replace-one")


def test_without_a_terminal_a_run_in_python_says_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four minutes were silent in a file, of which the command line prints lines."""
    with progress_panel(None):
        report(RoundFinished(ROUND, 2, ""))
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("round 1/2: accuracy 50.0 %")


def test_a_run_of_python_has_a_report_and_its_history_is_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = finished_run(tmp_path)
    result = Result(done.state, done.folder)
    assert result.write_report() == tmp_path / "report.html"
    assert "<h1>" in (tmp_path / "report.html").read_text()

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("fedaux.runs.result.importlib.import_module", missing)
    header, first, second = repr(result.history).splitlines()
    assert header.split()[:2] == ["round", "accuracy"]
    assert (first.split()[0], second.split()[0]) == ("1", "2")
    assert len({len(header), len(first), len(second)}) == 1
    assert result.history[1]["accuracy"] == done.curve[1]


def test_warnings_are_commands_on_the_command_line_and_keywords_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line said `First try: local={"epochs": 40}`."""
    done = finished_run(tmp_path)
    label = next(iter(done.state.weights))
    table = [[36, *[0] * 9] for _ in range(10)]
    last = replace(done.state.history[-1], confusion={label: table})
    state = replace(done.state, history=(*done.state.history[:-1], last))
    result = Result(state, done.folder)
    assert "--set" not in result.warning
    show_run(result, Console(width=1000), as_json=False)
    assert "First try: --set" in capsys.readouterr().out

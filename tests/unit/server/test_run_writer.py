"""Lines are written once and count when they are committed, whatever a crash has left beyond them."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.core.results import ClientMetrics
from fedaux.server.run_state import ACCOUNTS, FILE, HISTORY, RELEASES, START, RunState
from fedaux.server.run_writer import RunWriter
from helpers.states import ACCOUNT, RESULT, release, sample_state

FILES = (ACCOUNTS, HISTORY, RELEASES, START, FILE)


def grown(count: int) -> list[RunState]:
    """As a run saves them: prepared, then releases and a result for each of so many rounds, each by a new client."""
    states = [
        replace(sample_state(0), releases={}, accounts={}, unheard=frozenset(), prepared=frozenset(), last_round={})
    ]
    for number in range(1, count + 1):
        name = f"client-{number}"
        asked = replace(states[-1], selected=(name, "silent")).with_releases({name: release(name)})
        trained = asked.with_accounts((name, "silent"), {name: replace(ACCOUNT, entries=number)})
        weights = {"mlp": {"float32": np.full(3, number, np.float32)}}
        metrics = {name: ClientMetrics(number, 0.1, 0.2)}
        states += [asked, trained.after(weights, replace(RESULT, round=number, client_metrics=metrics))]
    return states


def facts_of(state: RunState) -> tuple[Any, ...]:
    releases = {
        client: {**vars(one), "arrays": one.arrays["values"].tolist()} for client, one in state.releases.items()
    }
    clients = state.accounts, state.unheard, state.prepared, state.last_round
    return state.config, state.round, state.history, releases, *clients, state.weights["mlp"]["float32"].tobytes()


def test_a_run_that_grows_is_the_same_as_one_that_is_saved_whole(tmp_path: Path) -> None:
    writer, states = RunWriter(tmp_path / "grown"), grown(3)
    for each in states:
        writer.save(each)
        RunWriter(tmp_path / "whole").save(each)
        assert facts_of(RunState.load(tmp_path / "grown")) == facts_of(RunState.load(tmp_path / "whole"))
    assert facts_of(RunState.load(tmp_path / "grown")) == facts_of(states[-1])


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    writer, sizes = RunWriter(tmp_path), list[int]()
    for each in grown(20):
        before = {name: (tmp_path / name).read_bytes() for name in FILES[:4]} if sizes else {}
        writer.save(each)
        for name, data in before.items():
            assert (tmp_path / name).read_bytes().startswith(data)
        sizes.append((tmp_path / FILE).stat().st_size)
    assert sizes[-1] - sizes[2] < 100  # only numbers in it have grown
    assert (
        len((tmp_path / RELEASES).read_text().splitlines()) == len((tmp_path / HISTORY).read_text().splitlines()) == 20
    )
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(FILES)


@pytest.mark.parametrize("name", [HISTORY, RELEASES, ACCOUNTS])
@pytest.mark.parametrize("torn", [b'{"client":"x","ep', b"\n", b'{"client":"x"}\n', bytes(9000)])
def test_what_was_not_committed_is_ignored_and_overwritten(tmp_path: Path, name: str, torn: bytes) -> None:
    *earlier, last = grown(2)
    writer = RunWriter(tmp_path)
    for each in earlier:
        writer.save(each)
    with (tmp_path / name).open("ab") as file:
        file.write(torn)
    saved = RunState.load(tmp_path)
    assert facts_of(saved) == facts_of(earlier[-1])
    RunWriter(tmp_path, saved).save(last)
    RunWriter(tmp_path / "whole").save(last)
    for each in (HISTORY, RELEASES):
        assert (tmp_path / each).read_bytes() == (tmp_path / "whole" / each).read_bytes()
    assert facts_of(RunState.load(tmp_path)) == facts_of(last)


def test_a_save_that_failed_leaves_the_last_state_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *earlier, last = grown(2)
    writer = RunWriter(tmp_path)
    for each in earlier:
        writer.save(each)
    real = os.fsync
    for broken in range(3):  # history, accounts, state
        outcomes = iter([None] * broken + [OSError("disk full")])

        def fsync(file: int, outcomes: Iterator[OSError | None] = outcomes) -> None:
            if error := next(outcomes):
                raise error
            real(file)

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", fsync)
            with pytest.raises(OSError, match="disk full"):
                writer.save(last)
        assert facts_of(RunState.load(tmp_path)) == facts_of(earlier[-1])
    writer.save(last)
    assert facts_of(RunState.load(tmp_path)) == facts_of(last)
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(FILES)


def test_more_rounds_are_kept_when_a_run_goes_on(tmp_path: Path) -> None:
    first, *later = grown(1)
    RunWriter(tmp_path).save(first)
    saved = replace(RunState.load(tmp_path), config=replace(first.config, rounds=77))
    RunWriter(tmp_path, saved).save(replace(later[0], config=saved.config))
    assert RunState.load(tmp_path).config.rounds == 77

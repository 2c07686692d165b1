"""What is loaded is what was committed, to the bit, or an error that says which file is
damaged.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.errors import FedauxError
from fedaux.core.results import ClientMetrics
from fedaux.server.run_state import (
    ACCOUNTS,
    HISTORY,
    RELEASES,
    START,
    STATE_FILE,
    STATE_VERSION,
    RunState,
    StateError,
)
from fedaux.server.run_writer import RunWriter
from helpers.states import ACCOUNT, RESULT, release, sample_state

FILES = (ACCOUNTS, HISTORY, RELEASES, START, STATE_FILE)


def assert_same(one: Mapping[str, Arrays], two: Mapping[str, Arrays]) -> None:
    assert one.keys() == two.keys()
    for label in one:
        assert list(one[label]) == list(two[label])
        for name, array in one[label].items():
            other = two[label][name]
            assert (array.shape, array.dtype, array.tobytes()) == (
                other.shape,
                other.dtype,
                other.tobytes(),
            )


def test_round_trip_is_exact(tmp_path: Path) -> None:
    saved = sample_state()
    RunWriter(tmp_path / "run").save(saved)
    loaded = RunState.load(tmp_path / "run")
    assert (loaded.config, loaded.round, loaded.history) == (saved.config, 1, (RESULT,))
    assert loaded.prepared == {"client-000"}
    assert (loaded.accounts, loaded.awaiting_reply) == (
        {"client-000": ACCOUNT},
        {"client-001"},
    )
    assert loaded.last_round == {"client-000": 1}
    for room in ("weights", "extractors", "public", "method_state"):
        assert_same(getattr(saved, room), getattr(loaded, room))
    assert list(loaded.releases) == ["client-000", "client-001"]
    for client, one in saved.releases.items():
        other = loaded.releases[client]
        assert {**vars(one), "arrays": 0} == {**vars(other), "arrays": 0}
        assert_same({"": one.arrays}, {"": other.arrays})


def test_saving_what_was_loaded_changes_nothing(tmp_path: Path) -> None:
    RunWriter(tmp_path / "one").save(sample_state())
    RunWriter(tmp_path / "two").save(RunState.load(tmp_path / "one"))
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (
            tmp_path / "two" / name
        ).read_bytes()


@pytest.mark.parametrize("name", [HISTORY, RELEASES, ACCOUNTS])
@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: b"", lambda data: b"x" + data[1:], None],
)
def test_lines_that_were_committed_and_are_gone_are_a_state_error(
    tmp_path: Path, name: str, damage: Any
) -> None:
    RunWriter(tmp_path).save(sample_state())
    path = tmp_path / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateError, match=rf"{name} is damaged .*another folder"):
        RunState.load(tmp_path)


def test_a_run_keeps_the_id_that_it_began_with(tmp_path: Path) -> None:
    """A version with more settings would compute another, and clients would not find
    their state of the run.
    """
    RunWriter(tmp_path).save(replace(sample_state(), run="f00d"))
    assert RunState.load(tmp_path).run == "f00d"


def test_another_version_is_refused(tmp_path: Path) -> None:
    save_file({"x": np.ones(1)}, tmp_path / STATE_FILE, metadata={"version": "0"})
    with pytest.raises(
        StateError,
        match=rf"another version of fedaux \(state 0, this one reads {STATE_VERSION}\)",
    ):
        RunState.load(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[:200],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: struct.pack("<Q", 2**60) + data[8:],
        lambda data: b"not a state, but a text somebody saved under its name",
    ],
    ids=[
        "empty",
        "no header",
        "half a header",
        "one byte short",
        "one byte more",
        "endless header",
        "text",
    ],
)
def test_a_damaged_file_is_a_state_error(tmp_path: Path, damage: Any) -> None:
    RunWriter(tmp_path).save(sample_state())
    path = tmp_path / STATE_FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        StateError, match=r"state\.safetensors is damaged .*another folder"
    ) as caught:
        RunState.load(tmp_path)
    assert isinstance(caught.value, FedauxError)
    assert isinstance(caught.value, ValueError)


def test_a_history_can_be_read_without_this_package(tmp_path: Path) -> None:
    RunWriter(tmp_path).save(sample_state(2))
    first, second = map(json.loads, (tmp_path / HISTORY).read_text().splitlines())
    assert first == second
    assert (first["accuracy"], first["failures"]) == (
        {"mlp": 0.1 + 0.2},
        [{"client": "a", "reason": "gone", "kind": "invalid"}],
    )
    assert "confusion" not in first


def test_a_folder_without_a_run_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        StateError, match=r"nowhere holds no run .*Start one with `fedaux run`"
    ):
        RunState.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("label", "array"),
    [pytest.param("mine(mode=a|b)", np.ones(2)), pytest.param("mlp", np.array(2.5))],
    ids=["bar in an option", "single number"],
)
def test_odd_labels_and_shapes_survive(
    tmp_path: Path, label: str, array: np.ndarray
) -> None:
    RunWriter(tmp_path).save(RunState(Config(), 0, {label: {"x": array}}))
    assert_same({label: {"x": array}}, RunState.load(tmp_path).weights)


@pytest.mark.parametrize("damage", ["facts missing", "facts not JSON"])
def test_damage_inside_the_arrays_is_a_state_error(tmp_path: Path, damage: str) -> None:
    RunWriter(tmp_path).save(sample_state())
    tensors = load_file(tmp_path / STATE_FILE)
    if damage == "facts missing":
        del tensors["facts"]
    else:
        tensors["facts"][10:14] = 0
    save_file(tensors, tmp_path / STATE_FILE, metadata={"version": STATE_VERSION})
    with pytest.raises(StateError, match="is damaged"):
        RunState.load(tmp_path)


def grown(count: int) -> list[RunState]:
    """As a run saves them: prepared, then releases and a result for each of so many
    rounds, each by a new client.
    """
    states = [
        replace(sample_state(0), releases={}, clients={}),
    ]
    for number in range(1, count + 1):
        name = f"client-{number}"
        asked = replace(states[-1], selected=(name, "silent")).with_releases(
            {name: release(name)}
        )
        trained = asked.with_accounts(
            (name, "silent"), {name: replace(ACCOUNT, entries=number)}
        )
        weights = {"mlp": {"float32": np.full(3, number, np.float32)}}
        metrics = {name: ClientMetrics(number, 0.1, 0.2)}
        states += [
            asked,
            trained.after(
                weights, replace(RESULT, round=number, client_metrics=metrics)
            ),
        ]
    return states


def facts_of(state: RunState) -> tuple[Any, ...]:
    releases = {
        client: {**vars(one), "arrays": one.arrays["values"].tolist()}
        for client, one in state.releases.items()
    }
    clients = state.accounts, state.awaiting_reply, state.prepared, state.last_round
    return (
        state.config,
        state.round,
        state.history,
        releases,
        *clients,
        state.weights["mlp"]["float32"].tobytes(),
    )


def test_a_run_that_grows_is_the_same_as_one_that_is_saved_whole(
    tmp_path: Path,
) -> None:
    writer, states = RunWriter(tmp_path / "grown"), grown(3)
    for each in states:
        writer.save(each)
        RunWriter(tmp_path / "whole").save(each)
        assert facts_of(RunState.load(tmp_path / "grown")) == facts_of(
            RunState.load(tmp_path / "whole")
        )
    assert facts_of(RunState.load(tmp_path / "grown")) == facts_of(states[-1])


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    writer, sizes = RunWriter(tmp_path), list[int]()
    for each in grown(20):
        before = (
            {name: (tmp_path / name).read_bytes() for name in FILES[:4]}
            if sizes
            else {}
        )
        writer.save(each)
        for name, data in before.items():
            assert (tmp_path / name).read_bytes().startswith(data)
        sizes.append((tmp_path / STATE_FILE).stat().st_size)
    assert sizes[-1] - sizes[2] < 100  # only numbers in it have grown
    assert (
        len((tmp_path / RELEASES).read_text().splitlines())
        == len((tmp_path / HISTORY).read_text().splitlines())
        == 20
    )
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(FILES)


@pytest.mark.parametrize("name", [HISTORY, RELEASES, ACCOUNTS])
@pytest.mark.parametrize(
    "torn", [b'{"client":"x","ep', b"\n", b'{"client":"x"}\n', bytes(9000)]
)
def test_what_was_not_committed_is_ignored_and_overwritten(
    tmp_path: Path, name: str, torn: bytes
) -> None:
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
        assert (tmp_path / each).read_bytes() == (
            tmp_path / "whole" / each
        ).read_bytes()
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

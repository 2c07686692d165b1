"""What is loaded is what was saved, to the bit, or the file as it was before."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedaux.algorithms.run_state import FILE, VERSION, RunState, StateError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import FedauxError
from fedaux.core.messages import Account, Arrays, Failure, Release
from fedaux.core.results import ClientMetrics, PrivateTraining, RoundResult

RNG = np.random.default_rng(0)
RESULT = RoundResult(
    1,
    {"mlp": 0.1 + 0.2},
    {"b": ClientMetrics(7, 0.1, 1e-17, 0.25), "c": ClientMetrics(1, 2.5, 0.0)},
    (Failure("a", "gone"),),
    {"b": PrivateTraining(1.5, 0.1, 3)},
    seconds={"train": 1e-17},
    confusion={"mlp": [[1, 2], [3, 4]]},
)


ACCOUNT = Account(0.25, 1e-6, "add-remove", "person", 3)


def release(client: str) -> Release:
    values = np.array([2**62, -(2**62), 0, -1], dtype=np.int64)
    return Release(
        client,
        "mean-embedding",
        7,
        0.1,
        1e-5,
        "replace-one",
        "opendp",
        2.0**21,
        1e7 / 3,
        1e-6 / 3,
        True,
        Account(0.1, 1e-5, "replace-one", "record", 1).to_json(),
        {"values": values},
    )


def state(round_: int = 1) -> RunState:
    label = "cnn(width=4, norm=group)"
    weights = RNG.normal(size=9).astype(np.float32)
    weights[:3] = np.nan, -0.0, np.inf
    return RunState(
        Config(prototypes=(PrototypeSpec("mlp"), PrototypeSpec.of("cnn", norm="group", width=4))),
        round_,
        {"mlp": {"float32": weights, "int64": np.arange(3)}, label: {"float32": np.zeros((0,), np.float32)}},
        {"mlp": {"float32": RNG.normal(size=4).astype(np.float32)}},
        {"mlp": {"mean": RNG.normal(size=4).astype(np.float32), "basis": np.asfortranarray(RNG.normal(size=(4, 2)))}},
        {"client-000": release("client-000"), "client-001": release("client-001")},
        {"client-000": ACCOUNT},
        frozenset({"client-001"}),
        frozenset({"client-000"}),
        (RESULT,) * round_,
        {"client-000": 1},
        {"mlp": {"c": RNG.normal(size=9).astype(np.float32)}, label: {}},
    )


def assert_same(one: Mapping[str, Arrays], two: Mapping[str, Arrays]) -> None:
    assert one.keys() == two.keys()
    for label in one:
        assert one[label].keys() == two[label].keys()
        for name, array in one[label].items():
            other = two[label][name]
            assert (array.shape, array.dtype, array.tobytes()) == (other.shape, other.dtype, other.tobytes())


def test_round_trip_is_exact(tmp_path: Path) -> None:
    saved = state()
    saved.save(tmp_path / "run")
    loaded = RunState.load(tmp_path / "run")
    assert (loaded.config, loaded.round, loaded.history) == (saved.config, 1, (RESULT,))
    assert loaded.prepared == {"client-000"}
    assert (loaded.accounts, loaded.unheard) == ({"client-000": ACCOUNT}, {"client-001"})
    assert loaded.last_round == {"client-000": 1}
    for room in ("weights", "extractors", "public", "method_state"):
        assert_same(getattr(saved, room), getattr(loaded, room))
    assert list(loaded.releases) == ["client-000", "client-001"]
    for client, one in saved.releases.items():
        other = loaded.releases[client]
        assert {**vars(one), "arrays": 0} == {**vars(other), "arrays": 0}
        assert_same({"": one.arrays}, {"": other.arrays})


def test_saving_what_was_loaded_changes_nothing(tmp_path: Path) -> None:
    state().save(tmp_path / "one")
    RunState.load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one" / FILE).read_bytes() == (tmp_path / "two" / FILE).read_bytes()


def test_loaded_arrays_do_not_depend_on_the_file(tmp_path: Path) -> None:
    state().save(tmp_path)
    loaded = RunState.load(tmp_path)
    RunState(Config(), 0, {"mlp": {"float32": np.ones(2, np.float32)}}).save(tmp_path)
    assert_same({"": {"int64": np.arange(3)}}, {"": {"int64": loaded.weights["mlp"]["int64"]}})


def test_an_interrupted_save_leaves_the_last_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state(1).save(tmp_path)

    def fail(_: int) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            state(2).save(tmp_path)
    assert RunState.load(tmp_path).round == 1
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


def test_steps() -> None:
    first = RunState(Config(), 0, {"mlp": {}})
    after = (
        first.with_releases({"a": release("a")})
        .with_releases({"b": release("b")})
        .with_accounts(["a", "b", "c"], {"a": ACCOUNT, "b": ACCOUNT})
        .after({"mlp": {"x": np.ones(1)}}, RESULT)
    )
    assert (after.round, list(after.releases), after.history) == (1, ["a", "b"], (RESULT,))
    assert list(after.weights["mlp"]) == ["x"]
    assert (after.accounts, after.unheard) == ({"a": ACCOUNT, "b": ACCOUNT}, {"c"})
    assert (after.heard("a"), after.heard("c")) == (3, 0)
    assert after.with_accounts(["c"], {"c": ACCOUNT}).unheard == frozenset()
    assert (first.round, first.releases, first.history) == (0, {}, ())


def test_another_version_is_refused(tmp_path: Path) -> None:
    save_file({"x": np.ones(1)}, tmp_path / FILE, metadata={"version": "0"})
    with pytest.raises(StateError, match=rf"another version of fedaux \(state 0, not {VERSION}\)"):
        RunState.load(tmp_path)


@pytest.mark.parametrize("metadata", [None, {"fedaux": json.dumps({"version": VERSION})}], ids=["none", "older"])
def test_a_file_without_a_version_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"x": np.ones(1)}, tmp_path / FILE, metadata=metadata)
    with pytest.raises(StateError, match=r"another version of fedaux \(state None"):
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
    ids=["empty", "no header", "half a header", "one byte short", "one byte more", "endless header", "text"],
)
def test_a_damaged_file_is_a_state_error(tmp_path: Path, damage: Any) -> None:
    state().save(tmp_path)
    path = tmp_path / FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateError, match=r"state\.safetensors is damaged .*another folder") as caught:
        RunState.load(tmp_path)
    assert isinstance(caught.value, FedauxError)
    assert isinstance(caught.value, ValueError)


def test_facts_and_releases_are_arrays_and_only_the_version_is_metadata(tmp_path: Path) -> None:
    state().save(tmp_path)
    data = (tmp_path / FILE).read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    assert header["__metadata__"] == {"version": VERSION}
    tensors = load_file(tmp_path / FILE)
    assert tensors["releases"].tolist() == [2**62, -(2**62), 0, -1] * 2
    facts = json.loads(tensors["facts"].tobytes())
    assert [(one["client"], one["arrays"]) for one in facts["releases"]] == [("client-000", 4), ("client-001", 4)]


def test_releases_of_different_lengths_are_told_apart(tmp_path: Path) -> None:
    lengths = {"a": 3, "b": 0, "c": 5}
    releases = {
        name: replace(release(name), arrays={"values": np.arange(size) + size}) for name, size in lengths.items()
    }
    RunState(Config(), 0, {}, releases=releases).save(tmp_path)
    loaded = RunState.load(tmp_path).releases
    assert {name: one.arrays["values"].tolist() for name, one in loaded.items()} == {
        "a": [3, 4, 5],
        "b": [],
        "c": [5, 6, 7, 8, 9],
    }


def test_a_folder_without_a_run_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"nowhere holds no run .*start one with `fedaux run`"):
        RunState.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("label", "array"),
    [pytest.param("mine(mode=a|b)", np.ones(2)), pytest.param("mlp", np.array(2.5))],
    ids=["bar in an option", "single number"],
)
def test_odd_labels_and_shapes_survive(tmp_path: Path, label: str, array: np.ndarray) -> None:
    RunState(Config(), 0, {label: {"x": array}}).save(tmp_path)
    assert_same({label: {"x": array}}, RunState.load(tmp_path).weights)


def test_a_prototype_without_arrays_survives(tmp_path: Path) -> None:
    RunState(Config(), 0, {"mlp": {"x": np.ones(1)}}, public={"mlp": {}}).save(tmp_path)
    assert RunState.load(tmp_path).public == {"mlp": {}}


@pytest.mark.parametrize("damage", ["facts missing", "facts not JSON", "releases cut short"])
def test_damage_inside_the_arrays_is_a_state_error(tmp_path: Path, damage: str) -> None:
    state().save(tmp_path)
    tensors = load_file(tmp_path / FILE)
    if damage == "facts missing":
        del tensors["facts"]
    elif damage == "facts not JSON":
        tensors["facts"][10:14] = 0
    else:
        tensors["releases"] = tensors["releases"][:3]
    save_file(tensors, tmp_path / FILE, metadata={"version": VERSION})
    with pytest.raises(StateError, match="is damaged"):
        RunState.load(tmp_path)

"""A client's state goes on from the round that the server knows of, whatever was lost in between."""

import logging
import os
import stat
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.client.kept_state import (
    MODELS,
    RUNS,
    ClientState,
    LocalResult,
    ResultStore,
    TrainingSummary,
    training_identity,
)
from fedaux.core.messages import TrainOrder
from fedaux.privacy.accounting import Mechanism
from helpers.samples import train_order, weights


def state(value: float) -> dict[str, np.ndarray]:
    return {"c": np.full(3, value, np.float32), "step": np.array([value])}


def value_at(states: ClientState, round_: int) -> float | None:
    loaded = states.load(round_)
    return float(loaded["c"][0]) if loaded else None


def test_an_order_that_is_repeated_starts_where_it_started(tmp_path: Path) -> None:
    states = ClientState(tmp_path, "a", "run", "plain")
    assert states.load(0) == {}
    states.save(0, 2, state(2.0))
    states.save(2, 5, state(5.0))  # this reply is lost
    assert value_at(states, 2) == 2.0
    states.save(2, 6, state(6.0))  # so the next order goes on from round 2
    assert (value_at(states, 2), value_at(states, 5), value_at(states, 6)) == (2.0, None, 6.0)
    states.save(6, 9, state(9.0))  # and this one from round 6, which arrived
    assert (value_at(states, 2), value_at(states, 6), value_at(states, 9)) == (None, 6.0, 9.0)
    assert states.load(9)["step"].dtype == np.float64


def test_clients_and_runs_do_not_meet(tmp_path: Path) -> None:
    ClientState(tmp_path, "a", "run", "plain").save(0, 1, state(1.0))
    assert ClientState(tmp_path, "b", "run", "plain").load(1) == {}
    assert ClientState(tmp_path, "a", "other", "plain").load(1) == {}


def test_a_servers_words_are_no_part_of_a_path(tmp_path: Path) -> None:
    states = ClientState(tmp_path / "vault", "a", "../../elsewhere", "plain")
    states.save(0, 1, state(1.0))
    assert [path.parent for path in tmp_path.rglob("*.safetensors")] == [tmp_path / "vault"]
    assert stat.S_IMODE(states.path.stat().st_mode) == 0o600  # derived from private records


def test_a_state_that_was_lost_is_said_so_and_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    states = ClientState(tmp_path, "a", "run", "plain")
    states.save(0, 1, state(1.0))
    states.path.unlink()
    assert states.load(1) == {}
    with caplog.at_level(logging.WARNING):
        states.save(1, 2, state(2.0))
    assert "the state of round 1 was lost, and a has started anew" in caplog.text
    assert value_at(states, 2) == 2.0


def test_a_server_cannot_fill_the_disk_with_runs(tmp_path: Path) -> None:
    for run in range(RUNS + 3):
        ClientState(tmp_path, "a", str(run), "plain").save(0, 1, state(run))
    ClientState(tmp_path, "b", "0", "plain").save(0, 1, state(0.0))
    assert len(list(tmp_path.glob("*.safetensors"))) == RUNS + 1
    assert value_at(ClientState(tmp_path, "a", str(RUNS + 2), "plain"), 1) == RUNS + 2
    assert value_at(ClientState(tmp_path, "b", "0", "plain"), 1) == 0.0


RESULT = LocalResult(weights(1.5), 7, TrainingSummary(0.1 + 0.2, 12), 1.5, Mechanism(2.0, 0.25, 12))
ARRAYS = {"parameters": np.ones(3, np.float32)}
IRRELEVANT = {
    "known_entries": 9,
    "known_signature": "s",
    "extractor": ARRAYS,
    "teaching": "{}",
    "public": ARRAYS,
    "fit": ARRAYS,
    "client_fit": ARRAYS,
    "sum": "{}",
    "sealed": ARRAYS,
}


def test_a_result_comes_back_to_the_bit(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "vault", "a", "plain")
    store.keep("f00d", RESULT)
    found = LocalResult.load(store.path("f00d"))
    assert {name: (array.dtype, array.tobytes()) for name, array in found.weights.items()} == {
        name: (array.dtype, array.tobytes()) for name, array in RESULT.weights.items()
    }
    assert (found.records, found.trained, found.seconds, found.mechanism) == (
        RESULT.records,
        RESULT.trained,
        RESULT.seconds,
        RESULT.mechanism,
    )
    assert store.path("f00d").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "vault").stat().st_mode & 0o777 == 0o700


def other(value: Any) -> Any:
    if isinstance(value, dict):
        return {"c": np.ones(2, np.float32)}
    return value + ("x" if isinstance(value, str) else 1)


@pytest.mark.parametrize("name", [field.name for field in fields(TrainOrder)])
def test_all_that_decides_on_the_model_is_in_its_identity_and_nothing_else(name: str) -> None:
    order = train_order()
    changed = replace(order, **{name: IRRELEVANT.get(name, other(getattr(order, name)))})
    assert (training_identity(changed, True) == training_identity(order, True)) == (name in IRRELEVANT)


def test_a_model_without_privacy_never_answers_where_privacy_is_asked_for() -> None:
    assert training_identity(train_order(), private=True) != training_identity(train_order(), private=False)


def test_only_the_last_results_of_a_client_are_kept(tmp_path: Path) -> None:
    ours, theirs = ResultStore(tmp_path, "a", "plain"), ResultStore(tmp_path, "b", "plain")
    theirs.keep("1", RESULT)
    for age, identity in enumerate(["1", "2", "3"]):
        ours.keep(identity, RESULT)
        os.utime(ours.path(identity), (age, age))
    ours.drop_old()
    assert MODELS == 2
    assert [ours.path(identity).exists() for identity in ("1", "2", "3")] == [False, True, True]
    assert theirs.path("1").exists()


def test_a_full_disk_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "vault").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        ResultStore(tmp_path / "vault", "a", "plain").keep("f00d", RESULT)
    assert "trains again if its reply is lost" in caplog.text

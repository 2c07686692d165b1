"""A client's state goes on from the round that the server knows of, whatever was lost
in between.

How trained models are stored and found again is in test_answers.py.
"""

import logging
import stat
from pathlib import Path

import numpy as np
import pytest

from fedaux.client.kept_state import (
    FACTS,
    NOT_PRIVATE,
    RUNS,
    ClientState,
    LocalResult,
    TrainingSummary,
)
from fedaux.privacy.accounting import Mechanism
from helpers.samples import weights


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
    assert (value_at(states, 2), value_at(states, 5), value_at(states, 6)) == (
        2.0,
        None,
        6.0,
    )
    states.save(6, 9, state(9.0))  # and this one from round 6, which arrived
    assert (value_at(states, 2), value_at(states, 6), value_at(states, 9)) == (
        None,
        6.0,
        9.0,
    )
    assert states.load(9)["step"].dtype == np.float64


def test_clients_and_runs_do_not_meet(tmp_path: Path) -> None:
    ClientState(tmp_path, "a", "run", "plain").save(0, 1, state(1.0))
    assert ClientState(tmp_path, "b", "run", "plain").load(1) == {}
    assert ClientState(tmp_path, "a", "other", "plain").load(1) == {}


def test_colours_do_not_meet(tmp_path: Path) -> None:
    """The state after plain training depends on records without any noise."""
    plain, private = (
        ClientState(tmp_path, "a", "run", colour) for colour in ("plain", "private")
    )
    plain.save(0, 1, state(1.0))
    assert private.load(1) == {}
    private.save(0, 1, state(2.0))
    assert (value_at(plain, 1), value_at(private, 1)) == (1.0, 2.0)


def test_a_servers_words_are_no_part_of_a_path(tmp_path: Path) -> None:
    states = ClientState(tmp_path / "vault", "a", "../../elsewhere", "plain")
    states.save(0, 1, state(1.0))
    assert [path.parent for path in tmp_path.rglob("*.safetensors")] == [
        tmp_path / "vault"
    ]
    # derived from private records
    assert stat.S_IMODE(states.path.stat().st_mode) == 0o600


def test_a_state_that_was_lost_is_said_so_and_starts_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


RESULT = LocalResult(
    weights(1.5), 7, TrainingSummary(0.1 + 0.2, 12), 1.5, Mechanism(2.0, 0.25, 12)
)


@pytest.mark.parametrize(
    "mechanism", [RESULT.mechanism, NOT_PRIVATE], ids=["private", "plain"]
)
def test_a_result_comes_back_to_the_bit(mechanism: Mechanism) -> None:
    odd = {
        "parameters": np.array(
            [np.nextafter(np.float32(1), np.float32(2)), -0.0, np.inf], np.float32
        ),
        "buffers": np.zeros(0, np.float32),
        "counters": np.array(2**53 + 1, np.int64),
    }
    result = LocalResult(odd, RESULT.records, RESULT.trained, RESULT.seconds, mechanism)
    found = LocalResult.from_bytes(result.to_bytes())
    assert {
        name: (array.dtype, array.shape, array.tobytes())
        for name, array in found.weights.items()
    } == {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in odd.items()
    }
    assert (found.records, found.trained, found.seconds, found.mechanism) == (
        7,
        (0.1 + 0.2, 12),
        1.5,
        mechanism,
    )
    assert isinstance(found.trained, TrainingSummary)


def test_the_same_result_is_the_same_bytes() -> None:
    """What is answered again is compared by its bytes."""
    assert LocalResult.from_bytes(RESULT.to_bytes()).to_bytes() == RESULT.to_bytes()
    assert FACTS not in LocalResult.from_bytes(RESULT.to_bytes()).weights

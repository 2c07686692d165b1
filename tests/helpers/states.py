"""States of a run with everything in them."""

import numpy as np

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.core.results import ClientMetrics, PrivateTraining, RoundResult
from fedaux.messages import Release
from fedaux.server.run_state import ClientRecord, RunState

_RNG = np.random.default_rng(0)
RESULT = RoundResult(
    1,
    {"mlp": 0.1 + 0.2},
    {"b": ClientMetrics(7, 0.1, 1e-17, 0.25), "c": ClientMetrics(1, 2.5, 0.0)},
    (Failure("a", "gone"),),
    {"b": PrivateTraining(1.5, 0.1, 3)},
    seconds={"train": 1e-17},
    confusion={"mlp": [[1, 2], [3, 4]]},
    calibration={"mlp": [[10.0, 0.5, 0.25]]},
)

ACCOUNT = Account(0.25, 1e-6, "add-remove", "person", 3)


def release(client: str) -> Release:
    values = np.array([2**62, -(2**62), 0, -1], dtype=np.int64)
    return Release(
        client,
        "class-embedding",
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


def sample_state(round_: int = 1) -> RunState:
    label = "cnn(width=4, norm=group)"
    weights = _RNG.normal(size=9).astype(np.float32)
    weights[:3] = np.nan, -0.0, np.inf
    return RunState(
        Config(
            prototypes=(
                PrototypeSpec("mlp"),
                PrototypeSpec.of("cnn", norm="group", width=4),
            )
        ),
        round_,
        {
            "mlp": {"float32": weights, "int64": np.arange(3)},
            label: {"float32": np.zeros((0,), np.float32)},
        },
        {"mlp": {"float32": _RNG.normal(size=4).astype(np.float32)}},
        {
            "mlp": {
                "mean": _RNG.normal(size=4).astype(np.float32),
                "basis": np.asfortranarray(_RNG.normal(size=(4, 2))),
            }
        },
        {"client-000": release("client-000"), "client-001": release("client-001")},
        {
            "client-000": ClientRecord(ACCOUNT, prepared=True, last_round=1),
            "client-001": ClientRecord(awaiting_reply=True),
        },
        (RESULT,) * round_,
        {"mlp": {"c": _RNG.normal(size=9).astype(np.float32)}, label: {}},
    )

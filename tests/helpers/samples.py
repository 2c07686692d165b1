"""One of everything that crosses between server and client."""

from typing import Any

import numpy as np

from fedaux.core.accounts import Account
from fedaux.messages import (
    MESSAGE_VERSION,
    Consent,
    Counts,
    EveryOrder,
    Hello,
    HelloOrder,
    LookOrder,
    Masked,
    PlanOrder,
    PrepareOrder,
    Release,
    RunPlan,
    SumOrder,
    SumReply,
    Sums,
    SumsOrder,
    SumTerms,
    Tallies,
    Tally,
    TrainOrder,
    Update,
    plan_of,
)
from fedaux.privacy.mechanism import multiplier

ACCOUNT = Account(0.1, 1e-5, "replace-one", "record", 1).to_json()


def weights(value: float = 1.0) -> dict[str, Any]:
    return {
        "parameters": np.full((6,), value, np.float32),
        "counters": np.array([3], np.int64),
    }


def prepare_order(client: str = "a", **changes: Any) -> PrepareOrder:
    facts = {
        "prototype": '["mlp", {}]',
        "scorer": "class-embedding",
        "classes": 10,
        "size": 2,
        "h0": "f00d",
        "known_entries": 0,
        "extractor": weights(),
        "public": {
            "mean": np.zeros(3, np.float32),
            "basis": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2)),
        },
    }
    return PrepareOrder(client, **{**facts, **changes})


def release(client: str = "a", **changes: Any) -> Release:
    facts = {
        "scorer": "class-embedding",
        "records": 7,
        "epsilon": 0.1,
        "delta": 1e-5,
        "adjacency": "replace-one",
        "calibration": "analytic",
        "sensitivity": 2.0**21,
        "scale": multiplier(0.1, 1e-5, "analytic", 2, 2.0**21) * 2.0**21,
        "step": 1e-7 / 3,
        "unsafe": False,
        "account": ACCOUNT,
        "arrays": {"values": np.array([2**62, -(2**62)], np.int64)},
    }
    return Release(client, **{**facts, **changes})


def sums_order(client: str = "a", **changes: Any) -> SumsOrder:
    facts = {
        "prototype": '["mlp", {}]',
        "classes": 2,
        "sends": "moments",
        "width": 2,
        "h0": "f00d",
        "random_features": 0,
        "extractor": weights(),
        "standardisation": {
            "mean": np.zeros(2, np.float32),
            "deviation": np.ones(2, np.float32),
        },
    }
    return SumsOrder(client, **{**facts, **changes})


def sums(client: str = "a", records: int = 3, **changes: Any) -> Sums:
    """Of (1, 0) and (0, 2) in class 0; of a third record the class is not declared."""
    arrays = {"class_sums": [[1, 2], [0, 0]], "counts": [2, 0], "moments": [1, 0, 4]}
    steps = {name: np.array(values, np.int64) << 26 for name, values in arrays.items()}
    return Sums(client, records, ACCOUNT, {**steps, **changes})


def look_order(client: str = "a", **changes: Any) -> LookOrder:
    tallies = Tallies({"answers": Tally("answers"), "hits": Tally("hits", 0.5)})
    facts = {
        "prototype": '["mlp", {}]',
        "classes": 3,
        "tallies": tallies.to_json(),
        "size": 8,
        "h0": "",
        "random_features": 0,
        "run": "cafe",
        "known_entries": 0,
        "weights": weights(),
    }
    return LookOrder(client, **{**facts, **changes})


def counts(client: str = "a", **changes: Any) -> Counts:
    sensitivity = Tallies.from_json(look_order().tallies).sensitivity("replace-one")
    facts = {
        "epsilon": 0.1,
        "delta": 1e-5,
        "adjacency": "replace-one",
        "calibration": "analytic",
        "sensitivity": sensitivity,
        "scale": multiplier(0.1, 1e-5, "analytic", 8, sensitivity) * sensitivity,
        "unsafe": False,
        "account": ACCOUNT,
        "arrays": {"values": np.arange(8) << 20},
    }
    return Counts(client, **{**facts, **changes})


def train_order(client: str = "a", **changes: Any) -> TrainOrder:
    facts = {
        "round": 2,
        "prototype": '["mlp", {}]',
        "classes": 10,
        "method": "fedavg",
        "method_options": "{}",
        "epochs": 1,
        "batch_size": 32,
        "optimizer": "adam",
        "lr": 1e-3,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "mu": 0.0,
        "seed": 2**63 - 1,
        "h0": "",
        "known_entries": 0,
        "run": "cafe",
        "last_round": 1,
        "extractor": {},
        "weights": weights(),
        "broadcast": {},
    }
    return TrainOrder(client, **{**facts, **changes})


def update(client: str = "a", **changes: Any) -> Update:
    facts = {
        "round": 2,
        "records": 7,
        "loss": 0.5,
        "seconds": 0.1,
        "weights": weights(1.5),
        "extra": {},
    }
    facts |= {"noise": 0.0, "rate": 1.0, "steps": 0, "account": ACCOUNT}
    return Update(client, **{**facts, **changes})


def terms(order: str = "f00d", **changes: Any) -> SumTerms:
    """Of a sum of three sites, for the order with this identity."""
    facts = {
        "run": "cafe",
        "order": order,
        "attempt": 0,
        "sites": ["a", "b", "c"],
        "threshold": 3,
        "colluders": 1,
        "scale": 0.0,
        "length": 2,
    }
    return SumTerms(**{**facts, **changes})


def sum_order(client: str = "a", step: str = "shares", **changes: Any) -> SumOrder:
    arrays = {
        name: np.frombuffer(b"of " + name.encode(), np.uint8) for name in ("b", "c")
    }
    facts = {"sum": terms().to_json(), "arrays": arrays}
    return SumOrder(client, step=step, **{**facts, **changes})


def sum_reply(client: str = "a", step: str = "shares", **changes: Any) -> SumReply:
    facts = {"arrays": {"b": np.frombuffer(b"a share", np.uint8)}}
    return SumReply(client, step, **{**facts, **changes})


def masked(client: str = "a", **changes: Any) -> Masked:
    facts = {
        "account": ACCOUNT,
        "arrays": {"masked": np.array([2**64 - 1, 0], np.uint64)},
    }
    return Masked(client, **{**facts, **changes})


def plan() -> RunPlan:
    """Of a run that asks for a release, and then for training."""
    return plan_of("cafe", "fedavg", 3, False, [prepare_order(), train_order()])


def plan_order(client: str = "a", **changes: Any) -> PlanOrder:
    return PlanOrder(client, **{"plan": plan().to_json(), **changes})


def consent(client: str = "a", **changes: Any) -> Consent:
    return Consent(client, **{"plan": plan().hash, "decision": "approved", **changes})


def every_order() -> list[EveryOrder]:
    """One order of each kind."""
    return [
        HelloOrder(),
        plan_order(),
        prepare_order(),
        sums_order(),
        train_order(),
        look_order(),
        sum_order(),
    ]


def hello() -> Hello:
    return Hello('["a"]', '["ill", "well"]', MESSAGE_VERSION, "fedaux 1")

"""Everything that leaves a client, field by field, and what protects it. A test holds it against the message types.

`PUBLIC` follows from orders, settings and the client's account of earlier orders: no record has a say in it. `COVERED`
depends on records and is under the promise. `BARE` depends on records and is NOT under it. Hooks of a method see
models and never a record (`algorithms.hooks`): what they send is post-processing, covered where the model is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fedaux.core.messages import Hello, Release, Update


class Protection(Enum):
    PUBLIC = "public"
    COVERED = "private, covered"
    BARE = "private, NOT covered"


PUBLIC, COVERED, BARE = Protection


@dataclass(frozen=True)
class Crossing:
    """`private` is how a field is protected under `privacy.private_training`, `plain` how without it."""

    what: str
    plain: Protection
    private: Protection

    @classmethod
    def always(cls, what: str, protection: Protection) -> Crossing:
        return cls(what, protection, protection)


_SIZE = Crossing.always("number of records (persons) of a client; under add-remove the declared one", BARE)
_BUDGET = Crossing.always("the noise and the budget behind it", PUBLIC)
_ACCOUNT = Crossing.always("the client's account: total ε, δ, entries", PUBLIC)
_NAME = Crossing.always("name of the client", PUBLIC)

CROSSES: dict[type, dict[str, Crossing]] = {
    Hello: {
        "clients": Crossing.always("names of the clients", PUBLIC),
        "classes": Crossing.always("declared classes", PUBLIC),
    },
    Release: {
        "client": _NAME,
        "scorer": _BUDGET,
        "records": _SIZE,
        "epsilon": _BUDGET,
        "delta": _BUDGET,
        "adjacency": _BUDGET,
        "calibration": _BUDGET,
        "sensitivity": _BUDGET,
        "scale": _BUDGET,
        "step": _BUDGET,
        "unsafe": _BUDGET,
        "account": _ACCOUNT,
        "arrays": Crossing.always("certainty scores", COVERED),
    },
    Update: {
        "client": _NAME,
        "round": Crossing.always("number of the round", PUBLIC),
        "records": _SIZE,
        "loss": Crossing("loss of local training (0 under private training)", BARE, PUBLIC),
        "seconds": Crossing("seconds of local training (0 under private training)", BARE, PUBLIC),
        "noise": _BUDGET,
        "rate": _BUDGET,
        "steps": _BUDGET,
        "account": _ACCOUNT,
        "weights": Crossing("local models", BARE, COVERED),
        "extra": Crossing(
            "what the method computes from local models (control variates, counts of steps)", BARE, COVERED
        ),
    },
}
BESIDE = (  # what crosses without being a field of any message
    Crossing.always("when a reply arrives", BARE),
    Crossing.always("whether the data could be read at all: one of four words instead of a reply", BARE),
)


def crossings(private_training: bool) -> list[tuple[str, str]]:
    """(what leaves a client, how it is protected), each once; what is not covered comes first."""
    every = [one for fields in CROSSES.values() for one in fields.values()] + list(BESIDE)
    found = {one.what: one.private if private_training else one.plain for one in every}
    return [(what, kind.value) for one in (BARE, COVERED, PUBLIC) for what, kind in found.items() if kind is one]

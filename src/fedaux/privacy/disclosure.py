"""Everything that leaves a client, field by field, and what protects it. A test compares it with the message types.

`PUBLIC` follows from orders, settings and the client's account of earlier orders: no record influences it. `COVERED`
depends on records and is under the promise. `UNPROTECTED` depends on records and is NOT under it. Hooks of a method
see models and never a record (`methods.hooks`): what they send is post-processing, covered where the model is. So
are a model's logits on public data, weighted with what the server makes of the client's release.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fedaux.core.messages import Hello, Release, Sums, Update


class Protection(Enum):
    PUBLIC = "public"
    COVERED = "private, covered"
    UNPROTECTED = "private, NOT covered"


PUBLIC, COVERED, UNPROTECTED = Protection


@dataclass(frozen=True)
class Disclosure:
    """How a field is protected: `private` with `privacy.private_training`, `plain` without it."""

    what: str
    plain: Protection
    private: Protection

    @classmethod
    def always(cls, what: str, protection: Protection) -> Disclosure:
        return cls(what, protection, protection)


_SIZE = Disclosure.always("number of records (persons) of a client; under add-remove the declared one", UNPROTECTED)
_BUDGET = Disclosure.always("the noise and the budget behind it", PUBLIC)
_ACCOUNT = Disclosure.always("the client's account: total ε, δ, entries", PUBLIC)
_NAME = Disclosure.always("name of the client", PUBLIC)

DISCLOSED_FIELDS: dict[type, dict[str, Disclosure]] = {
    Hello: {
        "clients": Disclosure.always("names of the clients", PUBLIC),
        "classes": Disclosure.always("declared classes", PUBLIC),
        "speaks": Disclosure.always("version of messages", PUBLIC),
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
        "arrays": Disclosure.always("certainty scores", COVERED),
    },
    Sums: {
        "client": _NAME,
        "records": _SIZE,
        "account": _ACCOUNT,
        "arrays": Disclosure.always("sums of features per class, or of their products too", UNPROTECTED),
    },
    Update: {
        "client": _NAME,
        "round": Disclosure.always("number of the round", PUBLIC),
        "records": _SIZE,
        "loss": Disclosure("loss of local training (0 under private training)", UNPROTECTED, PUBLIC),
        "seconds": Disclosure("seconds of local training (0 under private training)", UNPROTECTED, PUBLIC),
        "noise": _BUDGET,
        "rate": _BUDGET,
        "steps": _BUDGET,
        "account": _ACCOUNT,
        "weights": Disclosure("local models", UNPROTECTED, COVERED),
        "extra": Disclosure("what the method computes from local models: control variates, …", UNPROTECTED, COVERED),
        "ensemble": Disclosure("logits of local models on public data (teachers.run_on)", UNPROTECTED, COVERED),
    },
}
SIDE_CHANNELS = (  # observable, but no field of any message
    Disclosure.always("when a reply arrives", UNPROTECTED),
    Disclosure.always("whether the data could be read at all: one of four words instead of a reply", UNPROTECTED),
)


def disclosures(private_training: bool, sums: bool = False) -> list[tuple[str, str]]:
    """(what leaves a client, how it is protected), each once; what is not covered comes first. `sums`: if any do."""
    kinds = [fields for kind, fields in DISCLOSED_FIELDS.items() if sums or kind is not Sums]
    every = [disclosure for fields in kinds for disclosure in fields.values()]
    protections = {d.what: d.private if private_training else d.plain for d in (*every, *SIDE_CHANNELS)}
    order = (UNPROTECTED, COVERED, PUBLIC)
    return [(what, each.value) for each in order for what, protection in protections.items() if protection is each]

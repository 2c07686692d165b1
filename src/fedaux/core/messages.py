"""The words that cross between server and client, as plain frozen types.

An order holds what the work needs besides the client's data and its own settings, which alone decide on privacy.
`weights` are a model's flat arrays (`prototypes.weights`); nothing here knows how they travel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from numpy.typing import NDArray

from fedaux.core.errors import Exit, FedauxError

Arrays = dict[str, NDArray[Any]]


class Refusal(StrEnum):
    """All that crosses when a client does not do as it is told: the reason itself stays in its own log."""

    BUDGET = "budget"
    ORDER = "order"
    SETTINGS = "settings"
    FAILED = "failed"

    @property
    def in_words(self) -> str:
        return {
            Refusal.BUDGET: "its privacy budget does not allow it",
            Refusal.ORDER: "the order does not fit the client's own settings",
            Refusal.SETTINGS: "the client's own settings cannot be right",
            Refusal.FAILED: "it failed; the reason is in the client's own log",
        }[self]


class OrderError(FedauxError, ValueError):
    """An order that the client's own settings do not allow."""

    code = Exit.PRIVACY


@dataclass(frozen=True)
class HelloOrder:
    """Who is there? Asked of a node before anything else."""


@dataclass(frozen=True)
class Hello:
    """The clients that a node speaks for, and the classes declared to it, each as JSON. No data is opened for it."""

    clients: str
    classes: str


@dataclass(frozen=True)
class Account:
    """What a client says of itself: ε of everything that it ever sent under noise, in this run and in others."""

    epsilon: float  # an upper bound at `delta`; ∞ where any noise came from a known seed
    delta: float
    adjacency: str
    unit: str
    entries: int  # that its account has; the server sends the number back, see `heard`

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Account:
        return cls(**json.loads(text))


@dataclass(frozen=True, eq=False)
class PrepareOrder:
    """P2, P3: summarise your data with this extractor and scorer, and release the summary as your own budget allows."""

    client: str
    prototype: str  # PrototypeSpec as JSON
    scorer: str
    classes: int
    size: int  # of the vector that this scorer releases
    h0: str  # hash of the extractor
    heard: int  # entries of the client's account that the server knows of
    extractor: Arrays = field(repr=False)  # empty where the client has it, or its features, already
    public: Arrays = field(repr=False)  # what the scorer derived from D⁻


@dataclass(frozen=True, eq=False)
class Release:
    """P3: the one private summary of a client, noise included; all the server derives from it is post-processing.

    `values * step` is the summary, `scale * step` the standard deviation of its noise, `records` the public |D_i|.
    """

    client: str
    scorer: str
    records: int
    epsilon: float
    delta: float
    adjacency: str
    calibration: str
    sensitivity: float  # ℓ₂, in steps
    scale: float  # of the noise, in steps
    step: float
    unsafe: bool  # seeded noise: no privacy at all
    account: str  # `Account` as JSON
    arrays: Arrays = field(repr=False)  # {"values": int64 (k,)}


@dataclass(frozen=True, eq=False)
class TrainOrder:
    """T1: start from these weights and train on your data."""

    client: str
    round: int
    prototype: str
    classes: int
    method: str  # whose hooks the client runs: a built-in name, or one that the client's own settings name as well
    method_options: str  # as JSON
    epochs: int
    batch_size: int
    optimizer: str
    lr: float  # of this round
    momentum: float
    weight_decay: float
    mu: float
    seed: int
    h0: str  # "" trains the whole network; a hash trains the head on features of that extractor
    heard: int
    run: str  # by which the client knows its state of this run
    last_round: int  # in which the server used an update of this client: its state goes on from there; 0: none yet
    extractor: Arrays = field(repr=False)  # as in `PrepareOrder`; empty without h0
    weights: Arrays = field(repr=False)
    broadcast: Arrays = field(repr=False)  # what the method sends beside the model


@dataclass(frozen=True, eq=False)
class Update:
    """The locally trained model. `noise`, `rate` and `steps` are those of private training (`privacy.accounting`).

    Noise 0 means that nothing protects the model. Under private training neither the loss nor the seconds are told.
    """

    client: str
    round: int
    records: int
    loss: float
    seconds: float
    noise: float
    rate: float
    steps: int
    account: str  # `Account` as JSON
    weights: Arrays = field(repr=False)
    extra: Arrays = field(repr=False)  # what the method sends beside the model


@dataclass(frozen=True)
class Failure:
    """A client that did not answer, or whose answer was refused: it costs its contribution, never the round."""

    client: str
    reason: str


Order = PrepareOrder | TrainOrder
Reply = Release | Update | Failure


class Federation(Protocol):
    """All the loop knows of the clients. Replies stream in any order; each should be used and dropped."""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]: ...

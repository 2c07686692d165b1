"""The words that cross between server and client, as plain frozen types.

An order holds what the work needs besides the client's data and its own settings, which alone decide on privacy.
`weights` are a model's flat arrays (`prototypes.weights`); nothing here knows how they travel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class HelloOrder:
    """Who is there? Asked of a node before anything else."""


@dataclass(frozen=True)
class Hello:
    """The clients that a node speaks for, and the names of their classes, each as JSON."""

    clients: str
    classes: str


@dataclass(frozen=True, eq=False)
class PrepareOrder:
    """P2, P3: summarise your data with this extractor and scorer, and release the summary as your own budget allows."""

    client: str
    prototype: str  # PrototypeSpec as JSON
    scorer: str
    classes: int
    size: int  # of the vector that this scorer releases
    h0: str  # hash of the extractor
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
    certificate: str
    sensitivity: float  # ℓ₂, in steps
    scale: float  # of the noise, in steps
    step: float
    unsafe: bool  # seeded noise: no privacy at all
    arrays: Arrays = field(repr=False)  # {"values": int64 (k,)}


@dataclass(frozen=True, eq=False)
class TrainOrder:
    """T1: start from these weights and train on your data."""

    client: str
    round: int
    prototype: str
    classes: int
    epochs: int
    lr: float
    batch: int
    mu: float
    seed: int
    h0: str  # "" trains the whole network; a hash trains the head on features of that extractor
    extractor: Arrays = field(repr=False)  # as in `PrepareOrder`; empty without h0
    weights: Arrays = field(repr=False)


@dataclass(frozen=True, eq=False)
class Update:
    """The locally trained model. `noise`, `rate` and `steps` are those of private training (`privacy.accounting`).

    Noise 0 means that nothing protects the model; under private training the loss is not told, and is 0.
    """

    client: str
    round: int
    records: int
    loss: float
    seconds: float
    noise: float
    rate: float
    steps: int
    weights: Arrays = field(repr=False)


@dataclass(frozen=True, eq=False)
class EvaluateOrder:
    """How well does this model do on your data?"""

    client: str
    round: int
    prototype: str
    classes: int
    h0: str
    extractor: Arrays = field(repr=False)
    weights: Arrays = field(repr=False)


@dataclass(frozen=True, eq=False)
class Score:
    client: str
    round: int
    records: int
    correct: int
    loss: float


@dataclass(frozen=True)
class Failure:
    """A client that did not answer, or whose answer was refused: it costs its contribution, never the round."""

    client: str
    reason: str


Order = PrepareOrder | TrainOrder | EvaluateOrder
Reply = Release | Update | Score | Failure


class Federation(Protocol):
    """All the loop knows of the clients. Replies stream in any order; each should be used and dropped."""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]: ...

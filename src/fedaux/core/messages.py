"""Messages between server and clients: orders one way, replies the other.

An order holds everything that the work needs except the client's data and its own settings; only these decide on
privacy. `weights` is a model's flat state (`models.flat_state`). Serialisation is the transport's business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from typing import Any, Protocol

from numpy.typing import NDArray

from fedaux.core.errors import Exit, FedauxError

VERSION = 1  # of messages: it grows with every change that an older reader could misread

Arrays = dict[str, NDArray[Any]]
ArrayTree = dict[str, dict[str, Arrays]]  # arrays by room, label and name


class Refusal(StrEnum):
    """Why a client refused an order. Only this category leaves the client; the details stay in its own log."""

    BUDGET = "budget"
    ORDER = "order"
    SETTINGS = "settings"
    FAILED = "failed"
    APPROVAL = "approval"
    QUOTA = "quota"  # in the client's place, by the server's link

    @property
    def description(self) -> str:
        return {
            Refusal.BUDGET: "its privacy budget does not allow it",
            Refusal.ORDER: "the order does not fit the client's own settings",
            Refusal.SETTINGS: "the client's own settings are invalid",
            Refusal.FAILED: "it failed; the reason is in the client's own log",
            Refusal.APPROVAL: "its owner has not approved it; `fedaux site pending` at the site has what to decide",
            Refusal.QUOTA: "its reply was larger than its order allows, too slow, or could not be read",
        }[self]


class OrderError(FedauxError, ValueError):
    """The client's own settings do not allow the order."""

    code = Exit.PRIVACY


def package_versions() -> dict[str, str]:
    """The versions of what server and sites run, as far as it is installed."""
    found = {}
    for name in ("fedaux", "flwr", "torch"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def versions_text() -> str:
    return ", ".join(f"{name} {version}" for name, version in package_versions().items())


@dataclass(frozen=True)
class HelloOrder:
    """The first order to a node: which clients does it have?"""


@dataclass(frozen=True)
class Hello:
    """The names of a node's clients and of its declared classes, each as JSON. No data is read to answer.

    A field that an older release does not send has a default.
    """

    clients: str
    classes: str
    speaks: int  # the version of messages that the node speaks, and the one before
    versions: str = ""  # of its packages, for the server's inventory


@dataclass(frozen=True)
class Account:
    """A client's own running total: ε of all its private releases and training, in this run and all others."""

    epsilon: float  # an upper bound at `delta`; ∞ if any noise was seeded
    delta: float
    adjacency: str
    unit: str
    entries: int  # in the client's account; the server returns the number as `known_entries`
    signature: str = ""  # of `entries` by the client, which alone can check it; the server returns it as well

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Account:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class SumTerms:
    """The terms of a secure sum. Each site checks them against its own settings, and signs them with its keys."""

    run: str
    statistic: str  # what is summed, see `statistic`
    attempt: int  # of this statistic: a sum that was given up is another sum
    sites: list[str]  # that are asked
    threshold: int  # how many of them the sum needs
    colluders: int  # how many of them may work together with the server
    scale: float  # of the noise that each site adds to its vector, in steps; 0: none
    length: int  # of the vector

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> SumTerms:
        return cls(**json.loads(text))


@dataclass(frozen=True, eq=False)
class SumOrder:
    """One of the four messages around the masked vectors of a secure sum, which are replies to other orders.

    `arrays` are bytes by site: the keys of all sites ("shares"), nothing ("survivors"), their signatures ("unmask").
    """

    client: str
    sum: str  # `SumTerms` as JSON
    step: str  # keys, shares, survivors or unmask
    arrays: Arrays = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class SumReply:
    """A site's answer to a `SumOrder`: its keys, its encrypted shares by site, its signature, its shares of secrets."""

    client: str
    step: str
    arrays: Arrays = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class Masked:
    """What a site would have sent, as one vector of integers under masks that cancel in the sum over all sites."""

    client: str
    account: str  # `Account` as JSON
    arrays: Arrays = field(repr=False)  # {"masked": uint64 (length,)}


@dataclass(frozen=True, eq=False)
class PrepareOrder:
    """P2, P3: compute the scorer's summary of the client's data and release it within the client's own budget."""

    client: str
    prototype: str  # PrototypeSpec as JSON
    scorer: str
    classes: int
    size: int  # dimension of the released vector
    h0: str  # hash of the extractor
    known_entries: int  # of the client's account, at the server: detects an account restored from an old copy
    extractor: Arrays = field(repr=False)  # empty if the client already has it or its features
    public: Arrays = field(repr=False)  # computed by the scorer from D⁻
    known_signature: str = ""  # `Account.signature` of `known_entries`
    sum: str = ""  # `SumTerms` as JSON: the reply is a `Masked` of a secure sum
    sealed: Arrays = field(default_factory=dict, repr=False)  # what other sites have encrypted for this one


@dataclass(frozen=True, eq=False)
class Release:
    """P3: a client's summary with noise added; everything the server computes from it is post-processing.

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
    unsafe: bool  # seeded noise: no privacy guarantee
    account: str  # `Account` as JSON
    arrays: Arrays = field(repr=False)  # {"values": int64 (k,)}


@dataclass(frozen=True, eq=False)
class SumsOrder:
    """Sum up the client's features, for a head in closed form."""

    client: str
    prototype: str
    classes: int
    sends: (
        str  # "class-sums"; "moments": with second moments; "moments-per-class": with those of each class; "mixtures"
    )
    width: int  # number of features that are summed
    h0: str  # hash of the extractor
    random_features: int  # as in `TrainOrder`
    extractor: Arrays = field(default_factory=dict, repr=False)  # as in `PrepareOrder`
    standardisation: Arrays = field(default_factory=dict, repr=False)  # as in `TrainOrder`
    sum: str = ""  # as in `PrepareOrder`
    sealed: Arrays = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of a client's features in integer steps (`methods.analytic_heads`), or mixtures; without noise."""

    client: str
    records: int
    account: str  # `Account` as JSON
    arrays: Arrays = field(repr=False)  # class_sums, counts, …: `sums_shapes`; or those of `fedpft.Mixtures`


@dataclass(frozen=True)
class Teaching:
    """T2 at the client: what it needs to compute its part of the ensemble, on `examples` of D_distill."""

    distill: str  # hash of D_distill, which the client's own must have
    examples: int  # in this round; fewer than all are drawn from the stream (seed, "distill-part", round)
    scorer: str = ""  # "": all teachers count equally
    weights: str = ""
    h0: str = ""  # hash of the extractor under which D_distill is scored

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Teaching:
        return cls(**json.loads(text))


@dataclass(frozen=True, eq=False)
class TrainOrder:
    """T1: train on the client's data, starting from these weights."""

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
    h0: str  # hash of the extractor on whose features only the head is trained; "" trains the whole network
    known_entries: int
    run: str  # the id under which the client keeps its state
    last_round: int  # the last whose update from this client was used: its state continues from there; 0: none
    weights: Arrays = field(repr=False)
    extractor: Arrays = field(default_factory=dict, repr=False)  # as in `PrepareOrder`; empty without h0
    broadcast: Arrays = field(default_factory=dict, repr=False)  # what the method sends beside the model
    teaching: str = ""  # `Teaching` as JSON; "" if the client does not teach, or the server runs its model
    public: Arrays = field(default_factory=dict, repr=False)  # of the scorer, as in `PrepareOrder`, for teaching
    fit: Arrays = field(default_factory=dict, repr=False)  # of the scorer to all releases; the peak of their odds
    client_fit: Arrays = field(default_factory=dict, repr=False)  # of the scorer to this client's release
    standardisation: Arrays = field(default_factory=dict, repr=False)  # of a head's features; empty: raw
    random_features: int = 0  # that a head is trained on; 0: h0's own (`models.registry.HeadFeatures`)
    known_signature: str = ""  # as in `PrepareOrder`
    freeze_batch_norm: bool = False  # normalise by the statistics of `weights`, and send them back as they are
    sum: str = ""  # as in `PrepareOrder`
    sealed: Arrays = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class Update:
    """The locally trained model. `noise`, `rate` and `steps` describe private training (`privacy.accounting`).

    Noise 0 means training was not private. Private training does not report `loss` and `seconds`.
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
    extra: Arrays = field(default_factory=dict, repr=False)  # what the method sends beside the model
    ensemble: Arrays = field(default_factory=dict, repr=False)  # its part (`Ensemble.to_arrays`), if it teaches


NO_ANSWER = "no-answer"  # a site is gone, or too late
INVALID = "invalid"  # a reply that is not used


@dataclass(frozen=True)
class Failure:
    """A client without a valid reply. The round continues without its contribution."""

    client: str
    reason: str
    kind: str = INVALID  # or NO_ANSWER, or the client's own `Refusal`: few of them, to be counted


@dataclass(frozen=True, eq=False)
class Subtotal:
    """A regional server's sum of its clients' updates in a round, as one reply; see `server.regions`."""

    facts: dict[str, Any] = field(repr=False)  # for JSON: figures of each client
    contribution: ArrayTree = field(repr=False)  # `methods.contribution.Contribution`


DataOrder = PrepareOrder | SumsOrder | TrainOrder  # to be answered from private records
Order = DataOrder | SumOrder
Answer = Release | Sums | Update | Masked | SumReply  # of a site
Reply = Answer | Failure | Subtotal


def statistic(order: DataOrder) -> str:
    """Name what a secure sum is of, as both sides understand the order."""
    what = f"models of round {order.round}" if isinstance(order, TrainOrder) else type(order).__name__[: -len("Order")]
    return f"{what.lower()} of {hashlib.sha256(order.prototype.encode()).hexdigest()[:16]}"


class Federation(Protocol):
    """Sends orders to clients and streams their replies in any order; each can be processed and dropped."""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]: ...

"""Orders: what a server may ask a site, with the marks of every field
(`messages.declaration`).

An order holds everything that the work needs except the client's data and its own
settings. Only these decide on privacy. `weights` is a model's flat state
(`models.flat_state`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_type_hints

import numpy as np

from fedaux.core.arrays import Arrays
from fedaux.messages.declaration import Part, asked, order
from fedaux.messages.tallies import MAX_BINS, Tallies
from fedaux.messages.types import (
    ANY_NAME,
    MAX_JSON,
    ArrayGroup,
    ArrayType,
    Flag,
    JsonObject,
    Number,
    Text,
    Type,
)

# of messages: it grows with every change that an older reader could misread
MESSAGE_VERSION = 2

MAX_RANDOM_FEATURES = 100_000
# numbers of a release: 1,000 classes with moments of 512 dimensions are under a million
MAX_RELEASE = 2**24
SMALLEST_FLOAT = float(np.finfo(np.float32).tiny)  # the smallest normal float32
# after the keys, which answer the order itself
SUM_STEPS = ("shares", "masked", "survivors", "unmask")


@dataclass(frozen=True)
class SumTerms:
    """The terms of a secure sum. Each site checks them against its own settings, and
    signs them with its keys.
    """

    run: str
    # the identity of the order whose answers are summed: the same at every site
    order: str
    attempt: int  # a sum that was given up is followed by another one
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


@dataclass(frozen=True)
class Teaching:
    """T2 at the client: what it needs to compute its part of the ensemble, on
    `examples` of D_distill.
    """

    distill: str  # hash of D_distill, which the client's own must have
    # in this round; fewer than all are drawn from the stream (seed, "distill-part",
    # round)
    examples: int
    scorer: str = ""  # "": all teachers count equally
    weights: str = ""
    h0: str = ""  # hash of the extractor under which D_distill is scored

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Teaching:
        return cls(**json.loads(text))


FLOAT = ("float32",)
HALF = ("float32", "float16")
LONG = ("int64",)
REAL = ("float32", "float64")
NAME = Text(256)
HASH = Text(128)
SPEC = Text(MAX_JSON)
COUNT = Number(0, 2**40)
CLASSES = Number(1, 2**20)
TEACHING = JsonObject(get_type_hints(Teaching), optional=True)
TERMS = {**get_type_hints(SumTerms), "sites": list}
SUM = JsonObject(TERMS, optional=True)
# buffers of a network may hold the −∞ of a mask, and counters are the integer buffers
# of any network
EXTRACTOR = ArrayGroup(
    {
        "parameters": ArrayType(FLOAT, ("P",)),
        "buffers": ArrayType(FLOAT, ("B",), finite=False),
        "counters": ArrayType(LONG, ("C",)),
    },
    complete=False,
)
MODEL = ArrayGroup(
    {
        "parameters": ArrayType(HALF, ("P",)),
        "buffers": ArrayType(HALF, ("B",), finite=False),
        "counters": ArrayType(LONG, ("C",)),
    },
    complete=False,
    needed=True,
)
STANDARDISATION = ArrayGroup(
    {
        "mean": ArrayType(FLOAT, ("H",)),
        "deviation": ArrayType(FLOAT, ("H",), low=SMALLEST_FLOAT),
    }
)
CLASS_WEIGHTS = ArrayGroup({"weights": ArrayType(FLOAT, ("C",), low=SMALLEST_FLOAT)})
_EMBEDDING = {"mean": ArrayType(FLOAT, ("H",)), "basis": ArrayType(FLOAT, ("H", "k"))}
PUBLIC_ARRAYS: dict[str, Mapping[str, ArrayType]] = {  # by scorer
    "class-embedding": _EMBEDDING,
    "class-moments": {**_EMBEDDING, "split": ArrayType(FLOAT, ("s",), low=0, high=1)},
    "logistic": {
        "mean": ArrayType(FLOAT, ("H",)),
        "radius": ArrayType(FLOAT, (1,), low=SMALLEST_FLOAT),
        "negatives": ArrayType(FLOAT, ("N", "H")),
    },
}
OWN_SCORER = {ANY_NAME: ArrayType((*REAL, "int64"), None)}
FIT = ArrayGroup({ANY_NAME: ArrayType(REAL, None)})
BROADCAST = ArrayGroup({ANY_NAME: ArrayType(FLOAT, None)})


def _bytes_of_sites(order: SumOrder) -> Type:
    """Return the type of bytes for or from any number of sites. Each has a length of
    its own.
    """
    return ArrayGroup(
        {ANY_NAME: ArrayType(("uint8",), None, most=2**15)},
        count=2 * len(order.terms.sites),
    )


def _counted_by(order: LookOrder) -> Type:
    """Return the type of the model that records are counted by, or of none."""
    needs_model = Tallies.from_json(order.tallies).needs_model
    return MODEL if needs_model else ArrayGroup({})


def _public(order: PrepareOrder) -> Type:
    return ArrayGroup(
        PUBLIC_ARRAYS.get(order.scorer, OWN_SCORER),
        needed=order.scorer in PUBLIC_ARRAYS,
    )


def _public_to_teach(order: TrainOrder) -> Type:
    scorer = Teaching.from_json(order.teaching).scorer if order.teaching else ""
    return ArrayGroup(PUBLIC_ARRAYS.get(scorer, OWN_SCORER))


@order("query.hello")
class HelloOrder:
    """The first order to a node: which clients does it have?"""


@order("query.plan")
class PlanOrder:
    """Before any other order of a run: here is all that the run will ask for
    (`messages.plan`). Is it approved?
    """

    client: str = asked(NAME, Part.SITE)
    plan: str = asked(JsonObject(), Part.RUN)  # `RunPlan` as JSON

    @property
    def plan_hash(self) -> str:
        return hashlib.sha256(self.plan.encode()).hexdigest()


@order("query.prepare")
class PrepareOrder:
    """P2, P3: compute the scorer's summary of the client's data and release it within
    the client's own budget.
    """

    client: str = asked(NAME, Part.SITE)
    prototype: str = asked(SPEC, Part.RUN)  # PrototypeSpec as JSON
    scorer: str = asked(NAME, Part.RUN)
    classes: int = asked(CLASSES, Part.RUN)
    # dimension of the released vector
    size: int = asked(Number(1, MAX_RELEASE), Part.RUN)
    h0: str = asked(HASH, Part.RUN)  # hash of the extractor
    # of the client's account, at the server: they detect an account restored from an
    # old copy
    known_entries: int = asked(COUNT, Part.CARRIER)
    # h0, or empty if the client already has it or its features
    extractor: Arrays = asked(EXTRACTOR, Part.CARRIER)
    public: Arrays = asked(_public, Part.RUN)  # computed by the scorer from D⁻
    # `Account.signature` of `known_entries`
    known_signature: str = asked(HASH, Part.CARRIER, default="")
    # the hash of the plan that this order belongs to
    plan: str = asked(HASH, Part.CARRIER, default="")
    # `SumTerms` as JSON: the first message of a secure sum
    sum: str = asked(SUM, Part.CARRIER, default="")


@order("query.sums")
class SumsOrder:
    """Sum up the client's features, for a head in closed form."""

    client: str = asked(NAME, Part.SITE)
    prototype: str = asked(SPEC, Part.RUN)
    classes: int = asked(CLASSES, Part.RUN)
    # "moments": with second moments
    sends: str = asked(Text(choices=("class-sums", "moments")), Part.RUN)
    width: int = asked(Number(1, 2**20), Part.RUN)  # number of features that are summed
    h0: str = asked(HASH, Part.RUN)
    # as in `TrainOrder`
    random_features: int = asked(Number(0, MAX_RANDOM_FEATURES), Part.RUN)
    extractor: Arrays = asked(EXTRACTOR, Part.CARRIER, default_factory=dict)
    # as in `TrainOrder`
    standardisation: Arrays = asked(STANDARDISATION, Part.RUN, default_factory=dict)
    plan: str = asked(HASH, Part.CARRIER, default="")
    sum: str = asked(SUM, Part.CARRIER, default="")


@order("train")
class TrainOrder:
    """T1: train on the client's data, starting from these weights."""

    client: str = asked(NAME, Part.SITE)
    round: int = asked(Number(1, 2**31), Part.ROUND)
    prototype: str = asked(SPEC, Part.RUN)
    classes: int = asked(CLASSES, Part.RUN)
    # whose hooks the client runs: that of the client's own settings
    method: str = asked(NAME, Part.RUN)
    method_options: str = asked(JsonObject(), Part.RUN)
    epochs: int = asked(Number(1, 2**20), Part.RUN)
    batch_size: int = asked(Number(1, 2**31), Part.RUN)
    optimizer: str = asked(NAME, Part.RUN)
    lr: float = asked(Number(1e-30, 1e30, whole=False), Part.ROUND)  # of this round
    momentum: float = asked(Number(0, 1, whole=False), Part.RUN)
    weight_decay: float = asked(Number(0, 1e30, whole=False), Part.RUN)
    mu: float = asked(Number(0, 1e30, whole=False), Part.RUN)
    seed: int = asked(Number(0, 2**63 - 1), Part.SITE)
    # of the extractor on whose features only the head is trained; "": a whole network
    h0: str = asked(HASH, Part.RUN)
    known_entries: int = asked(COUNT, Part.CARRIER)
    run: str = asked(NAME, Part.RUN)  # the id under which the client keeps its state
    # the last round whose update from this client was used: its state continues from
    # there; 0: none
    last_round: int = asked(Number(0, 2**31), Part.SITE)
    weights: Arrays = asked(MODEL, Part.ROUND)
    # as in `PrepareOrder`; empty without h0
    extractor: Arrays = asked(EXTRACTOR, Part.CARRIER, default_factory=dict)
    # what the method sends next to the model
    broadcast: Arrays = asked(BROADCAST, Part.ROUND, default_factory=dict)
    # `Teaching` as JSON; "" if the client does not teach, or the server runs its model
    teaching: str = asked(TEACHING, Part.ROUND, default="")
    # of the scorer, for teaching
    public: Arrays = asked(_public_to_teach, Part.ROUND, default_factory=dict)
    # of the scorer to all releases: what all clients share; in a secure sum with the
    # fit of the sum of releases
    fit: Arrays = asked(FIT, Part.ROUND, default_factory=dict)
    # of the scorer to this client's release
    client_fit: Arrays = asked(FIT, Part.SITE, default_factory=dict)
    # of a head's features; empty: raw
    standardisation: Arrays = asked(STANDARDISATION, Part.RUN, default_factory=dict)
    # that a head is trained on; 0: h0's own (`models.registry.HeadFeatures`)
    random_features: int = asked(Number(0, MAX_RANDOM_FEATURES), Part.RUN, default=0)
    known_signature: str = asked(HASH, Part.CARRIER, default="")
    # normalise by the statistics of `weights`, and send them back as they are
    freeze_batch_norm: bool = asked(Flag(), Part.RUN, default=False)
    # to which a step's gradient is scaled down, without noise; 0: to none
    max_grad_norm: float = asked(Number(0, 1e30, whole=False), Part.RUN, default=0.0)
    # how much the loss of a record of each class counts; empty: 1
    class_weights: Arrays = asked(CLASS_WEIGHTS, Part.ROUND, default_factory=dict)
    plan: str = asked(HASH, Part.CARRIER, default="")
    sum: str = asked(SUM, Part.CARRIER, default="")


@order("query.look")
class LookOrder:
    """Count records, and answer with noise on every count: those that the site holds
    out, by what a model says of them, or without a model all of them, by their class
    and by the columns of a table.
    """

    client: str = asked(NAME, Part.SITE)
    prototype: str = asked(SPEC, Part.RUN)
    classes: int = asked(CLASSES, Part.RUN)
    # `Tallies` as JSON: the bins
    tallies: str = asked(JsonObject(), Part.RUN)
    # number of bins
    size: int = asked(Number(1, MAX_BINS), Part.RUN)
    # as in `TrainOrder`
    h0: str = asked(HASH, Part.RUN)
    random_features: int = asked(Number(0, MAX_RANDOM_FEATURES), Part.RUN)
    run: str = asked(NAME, Part.RUN)
    known_entries: int = asked(COUNT, Part.CARRIER)
    weights: Arrays = asked(_counted_by, Part.ROUND, default_factory=dict)
    extractor: Arrays = asked(EXTRACTOR, Part.CARRIER, default_factory=dict)
    standardisation: Arrays = asked(STANDARDISATION, Part.RUN, default_factory=dict)
    known_signature: str = asked(HASH, Part.CARRIER, default="")
    plan: str = asked(HASH, Part.CARRIER, default="")
    sum: str = asked(SUM, Part.CARRIER, default="")


@order("query.sum")
class SumOrder:
    """One of the four messages that follow an order with terms.

    `arrays` are bytes by site: the keys of all sites ("shares"), what others have
    encrypted for this one ("masked"), nothing ("survivors"), the sites' signatures
    ("unmask").
    """

    client: str = asked(NAME, Part.SITE)
    sum: str = asked(JsonObject(TERMS), Part.RUN)
    step: str = asked(Text(choices=SUM_STEPS), Part.RUN)
    arrays: Arrays = asked(_bytes_of_sites, Part.SITE, default_factory=dict)

    @property
    def terms(self) -> SumTerms:
        return SumTerms.from_json(self.sum)


DataOrder = (
    PrepareOrder | SumsOrder | TrainOrder | LookOrder
)  # to be answered from private records
Order = DataOrder | SumOrder | PlanOrder
EveryOrder = HelloOrder | Order

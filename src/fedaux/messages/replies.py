"""Replies: what a site may answer, with what every field tells and how that is
protected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays, ArrayTree
from fedaux.core.failures import Failure
from fedaux.core.results import ClientMetrics, PrivateTraining
from fedaux.messages.declaration import Disclosure, Protection, answered, reply
from fedaux.messages.orders import (
    HASH,
    LONG,
    NAME,
    REAL,
    DataOrder,
    LookOrder,
    Order,
    PlanOrder,
    PrepareOrder,
    SumOrder,
    SumsOrder,
    SumTerms,
    Teaching,
    TrainOrder,
)
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

PUBLIC, COVERED, SUMMED, UNPROTECTED = Protection

MAX_STEPS = 10**6  # of private training in one round, and of any counter
# of keys with their signatures, of a signature, or of an encrypted share
MAX_SUM_BYTES = 512
MODELS_BESIDE = 3  # models that a method sends next to the trained one, at most
FINITE = 1e308

NAME_OF_CLIENT = Disclosure.always("name of the client", PUBLIC)
SIZE = Disclosure.always(
    "number of records (people) of a client, and under add-remove the declared one",
    UNPROTECTED,
)
SCORES = Disclosure.always("certainty scores", COVERED)
BUDGET = Disclosure.always("the noise and the budget behind it", PUBLIC)
ACCOUNT = Disclosure.always("the client's account: total ε, δ, entries", PUBLIC)
PROTOCOL = Disclosure.always(
    "keys, encrypted shares and signatures of secure sums", PUBLIC
)
TRAINED_FOR = "seconds of local training (0 under private training)"
EXTRA = "what the method computes from local models: control variates, …"

SIDE_CHANNELS = (  # observable, but no field of any message
    Disclosure.always("when a reply arrives", UNPROTECTED),
    Disclosure.always(
        "whether the data could be read at all: one of five words instead of a reply",
        UNPROTECTED,
    ),
)

RECORDS = Number(0, 2**62)
POSITIVE = Number(0, 2.0**60, whole=False, strict=True)
ACCOUNT_JSON = JsonObject(get_type_hints(Account))


def sums_shapes(classes: int, width: int, sends: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that sums of features consist of."""
    shapes: dict[str, tuple[int, ...]] = {
        "class_sums": (classes, width),
        "counts": (classes,),
    }
    if sends == "moments":  # the upper triangle of a symmetric matrix
        shapes["moments"] = (width * (width + 1) // 2,)
    return shapes


def ensemble_shapes(order: TrainOrder) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a client's part of the ensemble, or {} if the order does not
    ask for one.
    """
    if not order.teaching:
        return {}
    size = Teaching.from_json(order.teaching).examples
    return {"logits": (size, order.classes), "mass": (size,), "squares": (size,)}


def _counted(order: LookOrder) -> Type:
    return ArrayGroup({"values": ArrayType(LONG, (order.size,))}, needed=True)


def _released(order: PrepareOrder) -> Type:
    return ArrayGroup({"values": ArrayType(LONG, (order.size,))}, needed=True)


def _sums(order: SumsOrder) -> Type:
    shapes = sums_shapes(order.classes, order.width, order.sends)
    return ArrayGroup(
        {name: ArrayType(LONG, shape) for name, shape in shapes.items()},
        needed=True,
    )


def _masked(order: SumOrder) -> Type:
    return ArrayGroup(
        {"masked": ArrayType(("uint64",), (order.terms.length,))}, needed=True
    )


def _of_the_sum(order: DataOrder | SumOrder) -> Type:
    sites = len(SumTerms.from_json(order.sum).sites)
    return ArrayGroup(
        {ANY_NAME: ArrayType(("uint8",), None, most=MAX_SUM_BYTES)}, count=2 * sites
    )


def _step_of(order: DataOrder | SumOrder) -> Type:
    return Text(choices=(order.step,) if isinstance(order, SumOrder) else ("keys",))


def _model(order: TrainOrder) -> Type:
    """Return the arrays of the order, in their types and shapes."""
    arrays = {
        name: ArrayType((array.dtype.name,), array.shape, finite=name == "parameters")
        for name, array in order.weights.items()
    }
    return ArrayGroup(arrays, needed=True)


def _beside_the_model(order: TrainOrder) -> Type:
    most = MODELS_BESIDE * sum(array.nbytes for array in order.weights.values())
    arrays = {ANY_NAME: ArrayType((*REAL, "float16"), None)}
    return ArrayGroup(arrays, count=MODELS_BESIDE * len(order.weights), most=most)


def _ensemble(order: TrainOrder) -> Type:
    shapes = ensemble_shapes(order)
    return ArrayGroup(
        {name: ArrayType(LONG, shape) for name, shape in shapes.items()},
        needed=bool(shapes),
    )


def _round(order: TrainOrder) -> Type:
    return Number(order.round, order.round)


def _client(order: Order) -> Type:
    return Text(choices=(order.client,))


def _plan(order: PlanOrder) -> Type:
    return HASH


@reply
class Hello:
    """The names of a node's clients and of its declared classes, each as JSON. No data
    is read to answer.

    A field that an older release does not send has a default.
    """

    clients: str = answered(
        Text(MAX_JSON), Disclosure.always("names of the clients", PUBLIC)
    )
    classes: str = answered(
        Text(MAX_JSON), Disclosure.always("declared classes", PUBLIC)
    )
    # the version of messages that the node speaks
    speaks: int = answered(
        Number(0, 2**31), Disclosure.always("version of messages", PUBLIC)
    )
    versions: str = answered(
        Text(1000),
        Disclosure.always("versions of fedaux, Flower and PyTorch", PUBLIC),
        default="",
    )


@reply
class Consent:
    """What the owner of a site says to the plan of a run."""

    client: str = answered(_client, NAME_OF_CLIENT)
    plan: str = answered(
        _plan, Disclosure.always("the hash of the plan of a run", PUBLIC)
    )
    decision: str = answered(
        Text(choices=("approved", "pending", "refused")),
        Disclosure.always("whether the owner has approved the run", PUBLIC),
    )


@reply
class Release:
    """P3: a client's summary with noise added. Everything the server computes from it
    is post-processing.

    `values * step` is the summary, `scale * step` the standard deviation of its noise,
    `records` the public |D_i|.
    """

    client: str = answered(_client, NAME_OF_CLIENT)
    scorer: str = answered(NAME, BUDGET)
    records: int = answered(RECORDS, SIZE)
    epsilon: float = answered(POSITIVE, BUDGET)
    delta: float = answered(Number(0, 1, whole=False, strict=True), BUDGET)
    adjacency: str = answered(NAME, BUDGET)
    calibration: str = answered(NAME, BUDGET)
    sensitivity: float = answered(POSITIVE, BUDGET)  # ℓ₂, in steps
    scale: float = answered(POSITIVE, BUDGET)  # of the noise, in steps
    step: float = answered(POSITIVE, BUDGET)
    unsafe: bool = answered(Flag(), BUDGET)  # seeded noise: no privacy guarantee
    account: str = answered(ACCOUNT_JSON, ACCOUNT)  # `Account` as JSON
    # {"values": int64 (k,)}
    arrays: Arrays = answered(_released, SCORES)


@reply
class Sums:
    """Sums of a client's features in integer steps (`methods.analytic_heads`), without
    noise.
    """

    client: str = answered(_client, NAME_OF_CLIENT)
    records: int = answered(RECORDS, SIZE)
    account: str = answered(ACCOUNT_JSON, ACCOUNT)
    arrays: Arrays = answered(
        _sums,
        Disclosure.always(
            "sums of features per class, or of their products too", UNPROTECTED
        ),
    )


@reply
class Update:
    """The locally trained model. `noise`, `rate` and `steps` describe private training
    (`privacy.accounting`).

    Noise 0 means training was not private. Private training does not report `loss` and
    `seconds`.
    """

    client: str = answered(_client, NAME_OF_CLIENT)
    round: int = answered(_round, Disclosure.always("number of the round", PUBLIC))
    records: int = answered(RECORDS, SIZE)
    loss: float = answered(
        Number(-FINITE, FINITE, whole=False),
        Disclosure(
            "loss of local training (0 under private training)", UNPROTECTED, PUBLIC
        ),
    )
    seconds: float = answered(
        Number(0, FINITE, whole=False), Disclosure(TRAINED_FOR, UNPROTECTED, PUBLIC)
    )
    noise: float = answered(Number(0, 2.0**60, whole=False), BUDGET)
    rate: float = answered(Number(float(np.finfo(float).tiny), 1, whole=False), BUDGET)
    steps: int = answered(Number(0, MAX_STEPS), BUDGET)
    account: str = answered(ACCOUNT_JSON, ACCOUNT)
    weights: Arrays = answered(_model, Disclosure("local models", UNPROTECTED, COVERED))
    # what the method sends next to the model
    extra: Arrays = answered(
        _beside_the_model, Disclosure(EXTRA, UNPROTECTED, COVERED), default_factory=dict
    )
    # the client's part of the ensemble (`Ensemble.to_arrays`), if it teaches
    ensemble: Arrays = answered(
        _ensemble,
        Disclosure(
            "logits of local models on public data (teachers.run_on)",
            UNPROTECTED,
            COVERED,
        ),
        default_factory=dict,
    )


@reply
class Counts:
    """How many held-out records are in each bin of a look, with noise added.

    A count is `values` divided by the steps of its tally (`Tally.steps`), and so is the
    standard deviation of its noise, `scale`.
    """

    client: str = answered(_client, NAME_OF_CLIENT)
    epsilon: float = answered(POSITIVE, BUDGET)
    delta: float = answered(Number(0, 1, whole=False, strict=True), BUDGET)
    adjacency: str = answered(NAME, BUDGET)
    calibration: str = answered(NAME, BUDGET)
    sensitivity: float = answered(POSITIVE, BUDGET)  # ℓ₂, in steps
    scale: float = answered(POSITIVE, BUDGET)  # of the noise, in steps
    unsafe: bool = answered(Flag(), BUDGET)
    account: str = answered(ACCOUNT_JSON, ACCOUNT)
    # {"values": int64 (size,)}
    arrays: Arrays = answered(
        _counted, Disclosure.always("noisy counts of records", COVERED)
    )


@reply
class SumReply:
    """A site's part in the protocol of a secure sum: keys, encrypted shares, a
    signature, or shares of secrets.
    """

    client: str = answered(_client, NAME_OF_CLIENT)
    step: str = answered(_step_of, PROTOCOL)
    arrays: Arrays = answered(_of_the_sum, PROTOCOL, default_factory=dict)


@reply
class Masked:
    """What a site would have sent, as one vector of integers under masks that cancel in
    the sum over all sites.
    """

    client: str = answered(_client, NAME_OF_CLIENT)
    account: str = answered(ACCOUNT_JSON, ACCOUNT)
    arrays: Arrays = answered(  # {"masked": uint64 (length,)}
        _masked,
        Disclosure.always(
            "releases, sums of features, or models with their sizes and losses", SUMMED
        ),
    )


@dataclass(frozen=True, eq=False)
class Subtotal:
    """The sum of several clients' updates in a round, as one reply: of a regional
    server, see `server.regions`, or of a secure sum.

    Attributes:
        contribution: The arrays of `methods.contribution.Contribution`.
        accounts: The accounts of all clients that answered.
        client_metrics: Of the clients whose updates were used.
        private_training: Of the clients that train with noise.
        unprotected: How many updates came without noise.
        update_norms: How far each client moved its model, by prototype.
        failures: Of the clients that did not contribute.
        received: The bytes that these clients sent.
    """

    contribution: ArrayTree = field(repr=False)
    accounts: dict[str, Account]
    client_metrics: dict[str, ClientMetrics]
    private_training: dict[str, PrivateTraining] = field(default_factory=dict)
    unprotected: int = 0
    update_norms: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    received: int = 0


@dataclass(frozen=True, eq=False)
class SecureTotal:
    """The secure sum of what several sites answered to the same order, as one reply.

    Attributes:
        order: What one of them was asked. The others were asked the same.
        vector: The sum.
        sites: The sites whose vectors are in it.
        accounts: The accounts of all sites that sent a vector.
        scale: Of the noise that each site has added, in steps.
    """

    order: DataOrder
    vector: NDArray[np.int64] = field(repr=False)
    sites: tuple[str, ...]
    accounts: dict[str, Account]
    scale: float


# of a site
Answer = Release | Sums | Update | Counts | Masked | SumReply | Consent
_ANSWERS: dict[type, type[Answer]] = {
    PlanOrder: Consent,
    PrepareOrder: Release,
    SumsOrder: Sums,
    TrainOrder: Update,
    LookOrder: Counts,
}


def answer_type(order: Order) -> type[Answer]:
    """Return the type of a reply to this order: in a secure sum, what would identify a
    site is masked.
    """
    if isinstance(order, SumOrder):
        return Masked if order.step == "masked" else SumReply
    if not isinstance(order, PlanOrder) and order.sum:
        return SumReply
    return _ANSWERS[type(order)]

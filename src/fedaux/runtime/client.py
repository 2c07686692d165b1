"""The client: three handlers of a Flower ClientApp. Private records are read here and nowhere else, and never leave.

What a client may reveal is decided by its own settings, which stand in its node's configuration. An order names what
the server would like: it carries no budget, no noise and no code. A run's configuration is the server's as well.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedaux.config import Config
from fedaux.data.federated import client_name, open_data
from fedaux.data.records import Records
from fedaux.exchange import EvaluateOrder, PrepareOrder, Release, Score, TrainOrder, Update
from fedaux.prepare.features import outputs
from fedaux.prepare.scorers import make_scorer
from fedaux.privacy.release import BudgetError, Vault, release
from fedaux.prototypes import Prototype, PrototypeSpec, build, dump, load
from fedaux.runtime.messages import pack, unpack
from fedaux.seeds import derive, seeded_torch, torch_stream
from fedaux.train.local import evaluate as evaluate_model
from fedaux.train.local import train_local

app = ClientApp()
log = logging.getLogger(__name__)


@app.query("prepare")
def prepare(message: Message, context: Context) -> Message:
    """P2, P3: one release, remembered before it is sent."""
    order = unpack(PrepareOrder, message.content)
    config = own_config(context, order)
    vault = Vault(Path(str(context.node_config["vault"])) / order.client)
    try:
        made = vault.once(request_hash(order), lambda: make_release(order, own_records(context), config))
    except BudgetError:
        raise
    except Exception as error:  # its text may quote private numbers: it stays here
        log.exception("%s made no release", order.client)
        raise RuntimeError("no release was made; the reason is in the client's log") from error
    return Message(pack(made), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """T1: E epochs from the server's weights."""
    order, started = unpack(TrainOrder, message.content), time.perf_counter()
    own_config(context, order)
    records = own_records(context)
    model = resident(order.prototype, records.shape, order.classes)
    load(model, order.weights)
    steps = {"epochs": order.epochs, "batch": order.batch}
    with seeded_torch(order.seed):  # for networks that draw at random themselves, as dropout does
        loss = train_local(model, records, **steps, lr=order.lr, mu=order.mu, generator=torch_stream(order.seed))
    update = Update(order.client, order.round, len(records), loss, time.perf_counter() - started, dump(model))
    return Message(pack(update), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    order = unpack(EvaluateOrder, message.content)
    own_config(context, order)
    records = own_records(context)
    model = resident(order.prototype, records.shape, order.classes)
    load(model, order.weights)
    correct, loss = evaluate_model(model, records)
    return Message(pack(Score(order.client, order.round, len(records), correct, loss)), reply_to=message)


def own_config(context: Context, order: PrepareOrder | TrainOrder | EvaluateOrder) -> Config:
    """The client's own settings, once the order has been found to respect them."""
    config, spec = _parse(str(context.node_config["config"])), PrototypeSpec.from_json(order.prototype)
    if order.client != client_name(int(context.node_config["partition-id"])):
        raise BudgetError(f"this client is not {order.client!r}")
    if ":" in spec.name and spec not in config.prototypes:
        raise BudgetError(f"the order names code to import, {spec.name!r}, which this client's own settings do not")
    if isinstance(order, PrepareOrder) and order.scorer != config.privacy.scorer:
        raise BudgetError(f"the order asks for the scorer {order.scorer!r}, this client's settings say otherwise")
    return config


def own_records(context: Context) -> Records:
    """This client's private data, by its place in the configured split."""
    return open_data(_parse(str(context.node_config["config"]))).client(int(context.node_config["partition-id"]))


def make_release(order: PrepareOrder, records: Records, config: Config) -> Release:
    """Features, summary, noise. Scorer, budget, adjacency and noise are those of the client's own settings."""
    privacy = config.privacy
    model = resident(order.prototype, records.shape, classes=2)  # the head plays no part here
    load(model.features, order.extractor)
    size = len(records) if privacy.adjacency == "replace-one" else privacy.declared_records
    found = make_scorer(privacy).summarise(order.public, outputs(model.features, records), privacy.adjacency, size)
    return release(found, order.client, privacy)


def request_hash(order: PrepareOrder) -> str:
    """What was asked for, to the bit: the same question gets the same answer, any other is a new release."""
    digest = hashlib.sha256(json.dumps([order.client, order.prototype, order.scorer]).encode())
    for arrays in (order.extractor, order.public):
        for name in sorted(arrays):
            digest.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
            digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()[:24]


@lru_cache(maxsize=8)
def _parse(text: str) -> Config:
    return Config.from_dict(json.loads(text))


@lru_cache(maxsize=8)
def resident(prototype: str, shape: tuple[int, ...], classes: int) -> Prototype:
    """One model per prototype stays in memory; every order loads its weights into it."""
    return build(PrototypeSpec.from_json(prototype), shape, classes, derive(0, "resident"))

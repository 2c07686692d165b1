"""The client: three handlers of a Flower ClientApp. Private records are read here and nowhere else, and never leave."""

from __future__ import annotations

import hashlib
import json
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedaux.config import Config
from fedaux.data.federated import client_names, open_data
from fedaux.data.records import Records
from fedaux.exchange import EvaluateOrder, PrepareOrder, Release, Score, TrainOrder, Update
from fedaux.prepare.features import features
from fedaux.prepare.scorers import make_scorer
from fedaux.privacy.release import BudgetError, Vault, release
from fedaux.prototypes import Prototype, PrototypeSpec, build, dump, load
from fedaux.runtime.messages import pack, unpack
from fedaux.seeds import derive, torch_stream
from fedaux.train.local import evaluate as evaluate_model
from fedaux.train.local import train_local

app = ClientApp()


@app.query("prepare")
def prepare(message: Message, context: Context) -> Message:
    """P2, P3: one release, remembered before it is sent."""
    order, mine = unpack(PrepareOrder, message.content), own_config(context).privacy
    asked = (order.client, order.delta, order.adjacency, order.unsafe_seed)
    if asked != (own_name(context), mine.delta, mine.adjacency, mine.unsafe_seed):
        raise BudgetError(f"the order asks for {asked}, which this client's own settings do not allow")
    _allowed(order.prototype, context)
    vault = Vault(Path(str(context.run_config["vault"])) / own_name(context), mine.epsilon)
    return Message(pack(released(order, own_records(context), vault)), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """T1: E epochs from the server's weights."""
    order, records, started = unpack(TrainOrder, message.content), own_records(context), time.perf_counter()
    model = resident(_allowed(order.prototype, context), records.shape, order.classes)
    load(model, order.weights)
    loss = train_local(
        model,
        records,
        epochs=order.epochs,
        lr=order.lr,
        batch=order.batch,
        mu=order.mu,
        generator=torch_stream(order.seed),
    )
    update = Update(order.client, order.round, len(records), loss, time.perf_counter() - started, dump(model))
    return Message(pack(update), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    order, records = unpack(EvaluateOrder, message.content), own_records(context)
    model = resident(_allowed(order.prototype, context), records.shape, order.classes)
    load(model, order.weights)
    correct, loss = evaluate_model(model, records)
    return Message(pack(Score(order.client, order.round, len(records), correct, loss)), reply_to=message)


def released(order: PrepareOrder, records: Records, vault: Vault) -> Release:
    """The release for this request: from memory if it was ever made, else within the client's own limit."""
    request = request_hash(order)
    known = vault.recall(request)
    if known is not None:
        return known
    vault.check(order.epsilon)
    model = resident(order.prototype, records.shape, classes=2)  # the head plays no part here
    load(model.features, order.extractor)
    scorer = make_scorer(**json.loads(order.scorer))
    summary = scorer.summarise(order.public, features(model.features, records), order.adjacency, len(records))
    made = release(summary, order.client, scorer.name, order.epsilon, order.delta, order.certificate, order.unsafe_seed)
    vault.store(request, made)
    return made


def request_hash(order: PrepareOrder) -> str:
    """What was asked for, to the bit: the same question gets the same answer, any other is a new release."""
    facts = [
        order.client,
        order.prototype,
        order.scorer,
        order.epsilon,
        order.delta,
        order.adjacency,
        order.certificate,
        order.unsafe_seed,
    ]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for arrays in (order.extractor, order.public):
        for name in sorted(arrays):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()[:24]


def own_records(context: Context) -> Records:
    """This client's private data, by its place in the configured split."""
    return open_data(own_config(context)).client(int(context.node_config["partition-id"]))


def own_name(context: Context) -> str:
    return client_names(int(context.node_config["num-partitions"]))[int(context.node_config["partition-id"])]


def own_config(context: Context) -> Config:
    """The client's own settings: what an order may ask is bounded by them."""
    return _parse(str(context.run_config["config"]))


@lru_cache(maxsize=8)
def _parse(text: str) -> Config:
    return Config.from_dict(json.loads(text))


def _allowed(prototype: str, context: Context) -> str:
    """`module:function` imports code: only the client's own settings may name it, never a message."""
    spec = PrototypeSpec.from_json(prototype)
    if ":" in spec.name and spec not in own_config(context).prototypes:
        raise ValueError(f"the order names code to import, {spec.name!r}, that this client's own settings do not")
    return prototype


@lru_cache(maxsize=8)
def resident(prototype: str, shape: tuple[int, ...], classes: int) -> Prototype:
    """One model per prototype stays in memory; every order loads its weights into it."""
    return build(PrototypeSpec.from_json(prototype), shape, classes, derive(0, "resident"))

"""The client: three handlers of a Flower ClientApp. Private records are read here and nowhere else, and never leave.

What a client may reveal is decided by its own settings, which stand in its node's configuration. An order names what
the server would like: it carries no budget, no noise and no code. A run's configuration is the server's as well.
"""

from __future__ import annotations

import json
import logging
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from fedaux.config import Config
from fedaux.data.federated import open_private
from fedaux.data.records import Records
from fedaux.exchange import EvaluateOrder, Hello, HelloOrder, PrepareOrder, Release, Score, TrainOrder, Update
from fedaux.prepare.features import FeatureCache, Rows, fingerprint_arrays
from fedaux.prepare.h0 import extractor_hash
from fedaux.prepare.scorers import make_scorer
from fedaux.privacy.accounting import Spend, plan_training
from fedaux.privacy.release import release
from fedaux.privacy.units import Units
from fedaux.privacy.vault import BudgetError, Vault
from fedaux.prototypes import Prototype, PrototypeSpec, build, dump, halved, linear_head, load, origin
from fedaux.runtime.messages import pack, unpack
from fedaux.runtime.settings import own_clients, own_settings, site_config
from fedaux.seeds import derive, seeded_torch, torch_stream
from fedaux.train.local import evaluate as evaluate_model
from fedaux.train.local import train_local
from fedaux.train.private import train_private

app = ClientApp()
log = logging.getLogger(__name__)


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Whom this node speaks for, so that the server finds clients by their own names after any restart."""
    unpack(HelloOrder, message.content)
    config, clients = site_config(context), own_clients(context)
    classes = open_private(config, clients[0])[1]
    return Message(pack(Hello(json.dumps(clients), json.dumps(list(classes)))), reply_to=message)


@app.query("prepare")
def prepare(message: Message, context: Context) -> Message:
    """P2, P3: one release, remembered before it is sent."""
    order = unpack(PrepareOrder, message.content)
    config = own_config(context, order)
    allowed = config.privacy.releases
    try:
        made = vault_of(context, order).once(request_hash(order), lambda: make_release(order, context, config), allowed)
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
    model, records = own_task(order, context)
    config = own_config(context, order)
    loss, size, spend = 0.0, len(records), Spend(noise=0.0, steps=0)
    if config.privacy.train_epsilon > 0:
        spend = train_privately(order, model, records, config, vault_of(context, order))
        size = public_size(records, config)
    else:
        steps = {"epochs": order.epochs, "batch": order.batch}
        with seeded_torch(order.seed):  # for networks that draw at random themselves, as dropout does
            loss = train_local(model, records, **steps, lr=order.lr, mu=order.mu, generator=torch_stream(order.seed))
    update = Update(
        client=order.client,
        round=order.round,
        records=size,
        loss=loss,
        seconds=time.perf_counter() - started,
        noise=spend.noise,
        rate=spend.rate,
        steps=spend.steps,
        weights=halved(dump(model)) if order.weights["parameters"].dtype == "float16" else dump(model),
    )
    return Message(pack(update), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    order = unpack(EvaluateOrder, message.content)
    model, records = own_task(order, context)
    correct, loss = evaluate_model(model, records)
    return Message(pack(Score(order.client, order.round, len(records), correct, loss)), reply_to=message)


def own_task(order: TrainOrder | EvaluateOrder, context: Context) -> tuple[Prototype, Records]:
    """The ordered model and the rows it is for: the client's records, or their features where only heads train."""
    own_config(context, order)
    records = own_records(context, order)
    if order.h0:
        features = own_features(order, context)
        model, records = resident_head(features.shape[1], order.classes), Records(features, records.labels)
    else:
        model = resident(order.prototype, records.shape, order.classes)
    load(model, order.weights)
    return model, records


def own_config(context: Context, order: PrepareOrder | TrainOrder | EvaluateOrder) -> Config:
    """The client's own settings, once the order has been found to respect them."""
    config, spec = site_config(context), PrototypeSpec.from_json(order.prototype)
    if order.client not in own_clients(context):
        raise BudgetError(f"this client is not {order.client!r}")
    foreign = ":" in spec.name or not {"folder", "tokenizer"}.isdisjoint(dict(spec.options))
    if foreign and spec not in config.prototypes:
        raise BudgetError(f"the order names code or files, {spec.label!r}, which this client's own settings do not")
    if isinstance(order, PrepareOrder) and order.scorer != config.privacy.scorer:
        raise BudgetError(f"the order asks for the scorer {order.scorer!r}, this client's settings say otherwise")
    return config


def own_records(context: Context, order: PrepareOrder | TrainOrder | EvaluateOrder) -> Records:
    """The client's private data: its part of the configured split, or all that its site holds."""
    return open_private(site_config(context), order.client)[0]


def own_features(order: PrepareOrder | TrainOrder | EvaluateOrder, context: Context) -> Rows:
    """h0 over the client's own data, computed once and kept where only the client can read it."""

    def extractor() -> nn.Module:
        """h0 from the order, or this site's own copy of a published encoder: to the bit what the order's hash says."""
        module = resident(order.prototype, records.shape, 2).features  # the head plays no part here
        if order.extractor:
            load(module, order.extractor)
        elif origin(module):
            module.restore()  # type: ignore[operator]
        else:
            raise LookupError("this client no longer has the features of its data, and was not sent the extractor")
        if extractor_hash(dump(module), order.prototype) != order.h0:
            raise ValueError(f"the extractor here is not the one asked for, {order.h0}; is it the same release?")
        return module

    records = own_records(context, order)
    folder = Path(own_settings(context).get("features", str(vault_of(context, order).folder)))
    return FeatureCache(folder, private=True).features(order.h0, records, extractor)


def vault_of(context: Context, order: PrepareOrder | TrainOrder | EvaluateOrder) -> Vault:
    return Vault(Path(own_settings(context)["vault"]) / order.client)


def train_privately(order: TrainOrder, model: Prototype, records: Records, config: Config, vault: Vault) -> Spend:
    """As much noise as the client's own settings ask for, for as much training as they foresee, and no more of it."""
    privacy, local = config.privacy, config.local
    if bool(order.h0) != config.linear or (order.epochs, order.batch) != (local.epochs, local.batch):
        raise BudgetError("the order asks for other training than this client's budget was planned for")
    size = public_size(records, config)
    rounds = privacy.train_rounds or config.rounds
    plan = plan_training(privacy, local, size, rounds, known=vault.noise)
    vault.train_once(rounds, plan.noise)
    seed = derive(privacy.unsafe_seed, order.client, order.round) if privacy.unsafe_seed >= 0 else -1
    units, options = Units.of(records, "record", 1), {"lr": order.lr, "mu": order.mu, "clip": privacy.train_clip}
    train_private(model, records, units, plan, size=size, **options, unsafe_seed=seed)
    return plan if privacy.unsafe_seed < 0 else Spend(noise=0.0, steps=0)


def public_size(records: Records, config: Config) -> int:
    """|D_i| as the world knows it: the same for neighbours."""
    return len(records) if config.privacy.adjacency == "replace-one" else config.privacy.declared_records


def make_release(order: PrepareOrder, context: Context, config: Config) -> Release:
    """Features, summary, noise. Scorer, budget, adjacency and noise are those of the client's own settings."""
    privacy, features = config.privacy, own_features(order, context)
    size = public_size(Records(features), config)
    scorer, labels = make_scorer(privacy, order.classes), own_records(context, order).labels
    found = scorer.summarise(order.public, features, labels, privacy.adjacency, size, np.ones(len(labels)))
    return release(found, order.client, privacy)


def request_hash(order: PrepareOrder) -> str:
    """What was asked for, to the bit: the same question gets the same answer, any other is a new release."""
    return fingerprint_arrays(
        order.public, facts=[order.client, order.prototype, order.scorer, str(order.classes), order.h0]
    )


@lru_cache(maxsize=8)
def resident(prototype: str, shape: tuple[int, ...], classes: int) -> Prototype:
    """One model per prototype stays in memory; every order loads its weights into it."""
    return build(PrototypeSpec.from_json(prototype), shape, classes, derive(0, "resident"))


@lru_cache(maxsize=8)
def resident_head(width: int, classes: int) -> Prototype:
    return linear_head(width, classes)

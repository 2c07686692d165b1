"""What teaching costs: a server that runs each client's model on D_distill, or clients
that each run their own.

python benchmarks/teachers.py [--examples 2000 20000] [--classes 10 100] [--models
resnet8 head] [--teachers 5]

For each setting one row of a table: seconds that the server spends per client of a
round (weights, checks, teacher pass, sums), seconds that a client spends on teaching,
and megabytes of arrays both ways per client. One thread.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedaux.client.summaries import summarise
from fedaux.config.distillation import TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import PretrainConfig, PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.timing import Costs, payload_bytes
from fedaux.data.records import Records
from fedaux.flower.validation import validate_reply
from fedaux.messages import Teaching, TrainOrder, Update
from fedaux.methods.contribution import Ensemble
from fedaux.methods.teachers import teacher_logits
from fedaux.models.inference import transform_rows
from fedaux.privacy.mechanism import release
from fedaux.scoring.base import PortableScorer
from fedaux.scoring.teacher_weights import client_weights
from fedaux.server.preparation import initial_state
from fedaux.server.round import Round
from fedaux.server.run_state import RunState
from fedaux.server.server import Server

RECORDS = 500  # of each client
ACCOUNT = Account(0.1, 1e-5, "replace-one", "record", 1)


def settings(model: str, run_on: str) -> Config:
    network = (
        PrototypeSpec.of("resnet8", width=16)
        if model == "resnet8"
        else PrototypeSpec.of("mlp", features=512)
    )
    return Config(
        head_only=model == "head",
        prototypes=(network,),
        pretrain=PretrainConfig(epochs=0),
        teachers=TeachersConfig(run_on=run_on),
        privacy=PrivacyConfig(epsilon=1.0, unsafe_seed=0),
    )


def public_rows(model: str, examples: int) -> Records:
    """So many that 80 % of them are `examples`."""
    rng = np.random.default_rng(0)
    size = round(examples / 0.8)
    if model == "resnet8":
        return Records(rng.integers(0, 256, (size, 32, 32, 3)).astype(np.uint8))
    return Records(rng.normal(size=(size, 64)).astype(np.float32))


def with_releases(server: Server, state: RunState) -> RunState:
    """Each client has rows of a few classes, which are public ones here."""
    label = server.config.prototypes[0].label
    rng = np.random.default_rng(1)
    features = server.public.negatives(label).gather()
    public = state.public[label]
    found = {}
    for number, client in enumerate(server.clients):
        rows = rng.integers(len(features), size=RECORDS)
        labels = (number + rng.integers(5, size=RECORDS)) % server.classes
        facts = (
            public,
            features[rows],
            labels,
            "replace-one",
            RECORDS,
            np.ones(RECORDS),
        )
        summary = release(
            summarise(server.scorer, *facts), client, server.config.privacy
        )
        found[client] = replace(summary, account=ACCOUNT.to_json())
    return state.with_releases(found)


def own_half(
    server: Server, order: TrainOrder, weights: dict[str, Any]
) -> dict[str, Any]:
    """As `fedaux.client.teaching` computes it, from features that a client has on its
    disk.
    """
    label = server.config.prototypes[0].label
    scorer = server.scorer
    assert isinstance(scorer, PortableScorer)
    logits = teacher_logits(
        server.networks.trained[label], weights, server.public.distill_inputs(label)
    )
    features = (
        server.public.h0[label]
        .features(server.public.aux)
        .take(server.public.split.distill)
    )
    embedded = transform_rows(features, partial(scorer.embed, order.public))
    kind = Teaching.from_json(order.teaching).weights
    return Ensemble.of(
        logits, client_weights(scorer, kind, embedded, order.fit, order.client_fit)
    ).to_arrays()


def measure(
    model: str,
    examples: int,
    classes: int,
    teachers: int,
    run_on: str,
    cache: Path,
    show: bool = True,
) -> None:
    rows = public_rows(model, examples)
    names = [f"c{number}" for number in range(teachers)]
    test = Records(rows.x[:10], np.arange(10) % classes)
    costs = Costs()
    server = Server.of(settings(model, run_on), rows, test, classes, names, cache)
    state = initial_state(server)
    embedding = server.restore(state)
    state = with_releases(server, state).with_clients(names, prepared=True)
    with costs.phase("server"):
        current = Round.start(server, embedding, state, names, Costs())
    for name in names:
        order = server.orders.train(state, name, current.teachers.weights)
        half = dict[str, Any]()
        if run_on == "clients":
            with costs.phase("client"):
                half = own_half(server, order, order.weights)
        facts = (
            name,
            1,
            RECORDS,
            1.0,
            1.0,
            0.0,
            1.0,
            0,
            ACCOUNT.to_json(),
            order.weights,
        )
        update = Update(*facts, ensemble=half)
        with costs.phase("server"):
            validate_reply(order, update)
            current.add(update)
    assert not current.failures, current.failures
    seconds = [
        f"{costs.seconds[who] / teachers:.3f}" if who in costs.seconds else "–"
        for who in ("server", "client")
    ]
    megabytes = [f"{payload_bytes(message) / 1e6:.2f}" for message in (order, update)]
    name = "ResNet-8, width 16" if model == "resnet8" else "head on 512 features"
    if show:
        print(
            (
                f"| {name} | {examples:,} | {classes} | {run_on} | "
                f"{' | '.join([*seconds, *megabytes])} |"
            ),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, nargs="+", default=[2000, 20_000])
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--models", nargs="+", default=["resnet8", "head"])
    parser.add_argument("--teachers", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        # whatever is imported or allocated first
        measure("head", 100, 10, 2, "clients", Path(cache), show=False)
    print(
        "| model | examples | classes | run_on | server, s | client, s | MB to a "
        "client | MB from it |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        for model in asked.models:
            for examples in asked.examples:
                for classes in asked.classes:
                    for run_on in ("server", "clients"):
                        measure(
                            model,
                            examples,
                            classes,
                            asked.teachers,
                            run_on,
                            Path(cache),
                        )


if __name__ == "__main__":
    main()

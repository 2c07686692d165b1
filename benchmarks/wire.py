"""Bytes on the wire for each phase and client, as they are packed; and what half
precision does to accuracy.

python benchmarks/wire.py [--accuracy]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord

from fedaux import Config, run
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import DataConfig, FederationConfig, PretrainConfig
from fedaux.core.accounts import Account
from fedaux.data.records import Records
from fedaux.flower.serialization import serialize
from fedaux.messages import Order, Release, Update
from fedaux.server.preparation import initial_state
from fedaux.server.server import Server

NEGATIVES = 12_000  # the paper sends their features


def megabytes(item: Order | Release | Update) -> float:
    records = serialize(item)
    arrays = [array for name in records for array in _arrays(records[name])]
    return sum(arrays) / 1e6


def _arrays(record: object) -> list[int]:
    return (
        [len(array.data) for array in record.values()]
        if isinstance(record, ArrayRecord)
        else []
    )


def sizes(linear: bool, precision: str) -> dict[str, float]:
    config = Config(
        head_only=linear,
        prototypes=(PrototypeSpec.of("resnet8", width=64),),
        data=DataConfig(clients=2),
        pretrain=PretrainConfig(epochs=0),
        federation=FederationConfig(precision=precision),
    )
    rng = np.random.default_rng(0)
    images = Records(rng.integers(0, 255, (200, 32, 32, 3)).astype(np.uint8))
    with tempfile.TemporaryDirectory() as cache:
        server = Server.of(config, images, images, 10, ["a", "b"], Path(cache))
        state = initial_state(server)
        server.restore(state)
        first = server.orders.prepare(state, "a")
        train = server.orders.train(state, "a")
        later = server.orders.train(state.with_clients("a", prepared=True), "a")
    facts = (
        "class-embedding",
        625,
        0.1,
        1e-5,
        "replace-one",
        "analytic",
        1.0,
        1.0,
        1.0,
        False,
    )
    account = Account(0.1, 1e-5, "replace-one", "record", 1).to_json()
    made = Release("a", *facts, account, {"values": np.zeros(first.size, np.int64)})
    update = Update("a", 1, 625, 1.0, 1.0, 0.0, 1.0, 0, account, later.weights)
    return {
        "extractor, once": megabytes(replace(first, public={})),
        "public map, once": megabytes(replace(first, extractor={})),
        "release, once": megabytes(made),
        "model down, each round": megabytes(replace(train, extractor={})),
        "model up, each round": megabytes(update),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="also run digits in both precisions, 3 seeds",
    )
    asked = parser.parse_args()
    columns = {
        "whole network": sizes(False, "float32"),
        "the same, float16": sizes(False, "float16"),
        "head_only = true": sizes(True, "float32"),
    }
    print(
        "ResNet-8 of width 64, 512 features, 10 classes; MB a client. Features of D⁻: "
        f"{NEGATIVES * 512 * 4 / 1e6:.2f}"
    )
    print(
        "| |"
        + "".join(f" {name} |" for name in columns)
        + "\n| --- |"
        + " --- |" * len(columns)
    )
    for row in columns["whole network"]:
        print(
            f"| {row} |" + "".join(f" {found[row]:.3f} |" for found in columns.values())
        )
    if not asked.accuracy:
        return
    for precision in ("float32", "float16"):
        found = []
        for seed in range(3):
            config = replace(
                DEMO, seed=seed, federation=FederationConfig(precision=precision)
            )
            config = replace(config, privacy=replace(config.privacy, unsafe_seed=seed))
            with tempfile.TemporaryDirectory() as folder:
                found.append(run(config, folder).accuracy)
        print(
            f"digits, FedAUX, 5 rounds, {precision}: {np.mean(found):.4f} "
            f"{np.round(found, 4)}"
        )


if __name__ == "__main__":
    main()

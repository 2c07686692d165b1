"""B12: a new client process before it works. Flower starts one for every message to a
real site.

    python -m benchmarks.startup ORDER FOLDER…      # what such a process does: answers the order once for each folder

Processor time of `import torch` alone beside that of a process up to its first reply,
without the work itself: the time of the same order again, in the same process, at a
site that has never seen it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row

LIMIT = 1.0
REPEATS = 5
TORCH = "import time, torch; print(time.process_time())"


def rows() -> Iterator[Row]:
    for kind in ("prepare", "train"):
        bare = []
        ours = []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                orders = write_site(Path(folder))
                bare.append(float(run("-c", TORCH)))
                first, again = map(
                    float,
                    answer(
                        orders[kind], Path(folder) / "a", Path(folder) / "b"
                    ).split(),
                )
                ours.append(first - again)
        extra = min(ours) - min(bare)
        figures = f"{min(ours):.2f} s, PyTorch alone {min(bare):.2f} s: + {extra:.2f} s"
        yield Row(
            "B12",
            f"a new client process, first order: {kind}",
            f"≤ PyTorch + {LIMIT:g} s",
            figures,
            extra <= LIMIT,
        )


def answer(order: Path, *folders: Path) -> str:
    return run("-m", "benchmarks.startup", str(order), *map(str, folders))


def run(*words: str) -> str:
    return subprocess.run(
        [sys.executable, *words], check=True, capture_output=True, text=True
    ).stdout


def write_site(folder: Path) -> dict[str, Path]:
    """A site with 200 images of its own, and the orders of a server: files that a
    client process reads.
    """
    import json

    import numpy as np
    from flwr.common.serde import recorddict_to_proto

    from fedaux.config.schema import Config
    from fedaux.data.records import Records
    from fedaux.flower.serialization import serialize
    from fedaux.messages import ORDERS
    from fedaux.server.preparation import initial_state
    from fedaux.server.server import Server

    images = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 1)).astype(np.uint8)
    np.save(folder / "x.npy", images)
    np.save(folder / "y.npy", np.arange(200) % 2)
    data = {
        "source": "npy",
        "path": str(folder),
        "partition": "own",
        "classes": ["a", "b"],
    }
    settings = {
        "data": data,
        "federation": {"sites": ["site"], "sends": ["noisy sums", "models"]},
        "pretrain": {"epochs": 0},
        "prototypes": ["cnn"],
    }
    config = Config.from_dict(settings)
    (folder / "site.json").write_text(json.dumps(settings), encoding="utf-8")
    server = Server.of(
        config,
        Records(images),
        Records(images, np.arange(200) % 2),
        2,
        ["site"],
        folder / "cache",
    )
    state = initial_state(server)
    server.restore(state)
    paths = {}
    for kind, order in (
        ("prepare", server.orders.prepare(state, "site")),
        ("train", server.orders.train(state, "site")),
    ):
        paths[kind] = folder / ORDERS[type(order)]
        paths[kind].write_bytes(
            recorddict_to_proto(serialize(order)).SerializeToString()
        )
    return paths


def main(order: Path, *folders: Path) -> None:
    """Answer an order at sites that have only their own records, and print the
    processor time of each.
    """
    from flwr.app import Message
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict

    from fedaux.flower.client_app import app
    from fedaux.flower.in_process import InProcessGrid

    before = 0.0
    for folder in folders:
        settings = {
            "config": str(order.with_name("site.json")),
            "vault": str(folder),
            "clients": "site",
        }
        content = recorddict_from_proto(RecordDict.FromString(order.read_bytes()))
        (reply,) = InProcessGrid(app, 1, settings).send_and_receive(
            [Message(content, 2, order.name)]
        )
        assert reply.has_content(), reply.error
        now = time.process_time()
        print(now - before)
        before = now


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

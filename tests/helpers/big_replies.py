"""An app whose clients answer at once with models of 20 MB: what does a round of them
cost the server?
"""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.flower.federation import GridFederation
from fedaux.flower.serialization import deserialize, serialize
from fedaux.messages import TrainOrder, Update
from fedaux.methods.contribution import Contribution

SIZE = 5_000_000  # numbers of a model: 20 MB
server = ServerApp()
client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    order = deserialize(TrainOrder, message.content)
    weights = {
        "parameters": np.full(
            SIZE, float(order.client.rpartition("-")[2]) / 100, np.float32
        )
    }
    facts = {
        "records": 1,
        "loss": 1.0,
        "seconds": 0.1,
        "noise": 0.0,
        "rate": 1.0,
        "steps": 0,
    }
    account = Account(0.0, 1e-5, "replace-one", "record", 0).to_json()
    update = Update(
        order.client, order.round, **facts, account=account, weights=weights
    )
    return Message(serialize(update), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    nodes: list[int] = []
    while len(nodes) < 3:
        nodes, _ = list(grid.get_node_ids()), time.sleep(0.5)
    federation = GridFederation(
        grid, {f"c-{i}": nodes[i % 3] for i in range(80)}, timeout=1800
    )
    weights, found = {"parameters": np.zeros(SIZE, np.float32)}, {}
    for count in (10, 80):
        _reset_peak()
        started, total = time.perf_counter(), Contribution()
        for reply in federation.ask([_order(f"c-{i}", weights) for i in range(count)]):
            assert not isinstance(reply, Failure), reply
            total.merge(Contribution.of("model", reply.weights, reply.records))
            del reply
        mean = float(total.finish()[0]["model"]["parameters"][0])
        found[count] = {
            "peak": _peak(),
            "seconds": time.perf_counter() - started,
            "mean": mean,
        }
    Path(str(context.run_config["out"])).write_text(json.dumps(found))
    print("accuracy 1", flush=True)


def _order(name: str, weights: dict[str, np.ndarray]) -> TrainOrder:
    facts = {
        "prototype": "[]",
        "classes": 2,
        "method": "fedavg",
        "method_options": "{}",
        "epochs": 1,
        "batch_size": 1,
    }
    facts |= {
        "optimizer": "adam",
        "lr": 0.1,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "mu": 0.0,
        "seed": 0,
        "h0": "",
    }
    facts |= {
        "known_entries": 0,
        "run": "",
        "last_round": 0,
        "extractor": {},
        "broadcast": {},
    }
    return TrainOrder(name, 1, **facts, weights=weights)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here


def _peak() -> float:
    """Largest resident memory since then, in MB."""
    (line,) = [
        one
        for one in Path("/proc/self/status").read_text().splitlines()
        if one.startswith("VmHWM")
    ]
    return int(line.split()[1]) / 1024

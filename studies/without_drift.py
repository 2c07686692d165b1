"""How far could twenty rounds rise above ridge's head, if nothing were lost between the
clients?

    python -m studies.artifact restore studies/networks.toml
    python -m studies.without_drift          # half an hour of one core

Whole networks start from ridge's head, as those of studies/networks.py, and take as
many steps as a client does in twenty rounds. Each step follows the gradient of a batch
from all clients' images together: no client drifts, nobody is left out. Beside them,
batches as small as one client's. Accuracy on 5,000 training images that no client has.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fedaux.config.schema import Config
from fedaux.core.io import write_atomically
from fedaux.core.rng import numpy_stream
from fedaux.data.records import Records
from fedaux.models.compute import forward
from fedaux.models.inference import predict
from fedaux.models.optimizer import Optimizer
from fedaux.report.tables import markdown
from studies.ensembles import Networks
from studies.networks import SMALL
from studies.scorers import RESULTS
from studies.sources import cifar10

HELD_OUT = 5_000
SHOWN = (1, 2, 5, 10, 20)  # rounds


class Trial(NamedTuple):
    optimizer: Optimizer
    batch_size: int
    steps: int  # in a round


TRIALS = {
    "SGD .001, 32 images a step": Trial(Optimizer("sgd", 0.001), 32, 16),
    "SGD .003, 32 images a step": Trial(Optimizer("sgd", 0.003), 32, 16),
    "SGD .003, 640 images a step": Trial(Optimizer("sgd", 0.003), 640, 16),
    "Adam .0003, 1,600 images a step, one step a round": Trial(
        Optimizer("adam", 3e-4), 1600, 1
    ),
}


def curve(
    model: nn.Module, records: Records, judged: Records, trial: Trial, seed: int
) -> Iterator[float]:
    """Accuracy after each round; BatchNorm keeps the statistics of the start.

    A loop of its own: `train_local` would start Adam anew in every round, and ends with
    an epoch.
    """
    rng = numpy_stream(seed, "without drift")
    descent = trial.optimizer.make(list(model.parameters()))
    labels = torch.from_numpy(np.ascontiguousarray(records.labels))
    for _ in range(SHOWN[-1]):
        model.eval()
        for _ in range(trial.steps):
            rows = torch.from_numpy(
                rng.choice(len(records), trial.batch_size, replace=False)
            )
            descent.zero_grad()
            F.cross_entropy(
                forward(model, records.batch(rows)), labels[rows]
            ).backward()  # type: ignore[no-untyped-call]
            descent.step()
        yield accuracy(model, judged)


def accuracy(model: nn.Module, judged: Records) -> float:
    return float((predict(model, judged).argmax(axis=1) == judged.labels).mean())


def main() -> None:
    torch.set_num_threads(1)
    config = Config.load("studies/networks.toml", [*SMALL])
    here = Networks(config)
    seen = len(here.data.private)
    judged = cifar10(seen + HELD_OUT).train.take(np.arange(seen, seen + HELD_OUT))
    path = RESULTS / "without-drift-cifar10.json"
    found = (
        json.loads(path.read_text())
        if path.is_file()
        else {"ridge": [accuracy(here.start, judged)]}
    )
    for name, trial in TRIALS.items():
        if name not in found:
            found[name] = list(
                curve(
                    copy.deepcopy(here.start),
                    here.data.private,
                    judged,
                    trial,
                    config.seed,
                )
            )
            write_atomically(path, json.dumps(found, indent=0).encode())
            print(
                name, " ".join(f"{found[name][at - 1]:.3f}" for at in SHOWN), flush=True
            )
    rows = [
        (name, *(f"{values[min(at, len(values)) - 1]:.3f}" for at in SHOWN))
        for name, values in found.items()
    ]
    path.with_suffix(".md").write_text(
        markdown(rows, ("", *(f"round {at}" for at in SHOWN))), encoding="utf-8"
    )


if __name__ == "__main__":
    main()

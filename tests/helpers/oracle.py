"""Federated training on a tiny problem, written out plainly: what the methods' tests
compare real runs with.

Records, first weights, sampled clients and the order of batches are those of the
package. Every step of the optimiser and every update of the server is computed here
again, in float64 but for the network's own gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from fedaux.config.schema import Config
from fedaux.core.rng import derive_seed, torch_stream
from fedaux.data.federated import open_private
from fedaux.data.partition import batches
from fedaux.models import build
from fedaux.runs.runner import in_process
from fedaux.server.loop import run as run_rounds
from fedaux.server.loop import sample
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server

Vector = NDArray[np.float64]
# records of each client: their steps differ as well
SIZES = {"a": 9, "b": 17, "c": 30, "d": 44, "e": 61, "f": 80}
LOCAL: dict[str, Any] = {"optimizer": "sgd", "lr": 0.05, "epochs": 2, "batch_size": 8}


@dataclass(frozen=True)
class Problem:
    """Six clients that hold digits of few classes and unlike numbers of them; three are
    asked each round.
    """

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Problem":
        digits = load_digits()
        order = np.argsort(digits.target[:500], kind="stable")
        starts = np.cumsum([0, *SIZES.values()])
        parts = {
            name: order[start : start + SIZES[name]]
            for name, start in zip(SIZES, starts, strict=False)
        }
        for name, rows in {
            **parts,
            "test": np.arange(500, 600),
            "public": np.arange(600, 700),
        }.items():
            (folder / "data" / name).mkdir(parents=True)
            np.save(
                folder / "data" / name / "x.npy",
                (digits.data[rows] / 16).astype(np.float32),
            )
            np.save(
                folder / "data" / name / "y.npy", digits.target[rows].astype(np.int64)
            )
        return cls(folder)

    def config(
        self, method: str, local: dict[str, Any] | None = None, **options: Any
    ) -> Config:
        return Config.from_dict(
            {
                "method": method,
                "method_options": options,
                "rounds": 4,
                "fraction": 0.5,
                "prototypes": [
                    {"name": "mlp", "hidden": 4, "features": 4, "norm": "none"}
                ],
                "data": {
                    "source": "npy",
                    "path": str(self.folder / "data" / "test"),
                    "partition": "own",
                }
                | {"classes": list("0123456789")},
                "aux": {"source": "npy", "path": str(self.folder / "data" / "public")},
                "pretrain": {"epochs": 0},
                "local": {**LOCAL, **(local or {})},
                "federation": {"sites": list(SIZES)},
            }
        )

    def site(self, config: Config) -> Config:
        """What the sites' own settings say."""
        return replace(
            config,
            data=replace(config.data, path=str(self.folder / "data" / "{client}")),
        )

    def run(self, config: Config) -> RunState:
        """The package's own run."""
        folder = self.folder / config.hash
        server = make_server(config, cache=self.folder / "cache")
        return run_rounds(
            server, in_process(self.site(config), folder), None, lambda state: None
        )


def parameters(state: RunState) -> Vector:
    (arrays,) = state.weights.values()
    return np.asarray(arrays["parameters"], np.float64)


class Naive:
    """The same, step by step."""

    def __init__(self, problem: Problem, config: Config) -> None:
        self.config, (spec,) = config, config.prototypes
        self.records = {
            client: open_private(problem.site(config), client)[0] for client in SIZES
        }
        self.model = build(
            spec, (64,), 10, derive_seed(config.seed, "init", spec.label)
        )
        self.start = np.concatenate(
            [p.detach().double().numpy().ravel() for p in self.model.parameters()]
        )

    @property
    def rounds(self) -> range:
        return range(1, self.config.rounds + 1)

    def sampled(self, round_: int) -> dict[str, float]:
        """The clients of a round, and each one's share of their records."""
        clients = sample(list(SIZES), self.config, round_)[1]
        return {
            client: SIZES[client] / sum(SIZES[other] for other in clients)
            for client in clients
        }

    def gradient(self, theta: Vector, x: Any, y: Any) -> Vector:
        start = 0
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(
                    torch.tensor(theta[start : start + p.numel()]).float().view_as(p)
                )
                start += p.numel()
        slopes = torch.autograd.grad(
            F.cross_entropy(self.model(x), y), list(self.model.parameters())
        )
        return np.concatenate([slope.double().numpy().ravel() for slope in slopes])

    def train(
        self,
        theta: Vector,
        client: str,
        round_: int,
        term: Callable[[Vector], Vector] = np.zeros_like,
    ) -> tuple[Vector, int]:
        """SGD with momentum and weight decay from θ, `term` added to each gradient:
        (θ_i, number of steps).
        """
        local, records = self.config.local, self.records[client]
        generator = torch_stream(
            derive_seed(self.config.seed, "batches", client, round_)
        )
        theta, velocity, steps = theta.copy(), np.zeros_like(theta), 0
        for _ in range(local.epochs):
            for rows in batches(len(records), local.batch_size, generator):
                slope = self.gradient(
                    theta, records.batch(rows), torch.from_numpy(records.labels[rows])
                )
                velocity = (
                    local.momentum * velocity
                    + slope
                    + local.weight_decay * theta
                    + term(theta)
                )
                theta -= local.lr * velocity
                steps += 1
        return theta, steps

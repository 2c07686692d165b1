"""Linear heads on frozen features of CIFAR-10: every method tuned on validation data at the same cost, then tested.

    python -m studies.artifact restore studies/cifar10.toml
    python -m studies.heads --clients 20 80 --splits 3 --rounds 20
    python -m studies.heads --clients 20 80 --splits 3 --rounds 100     # goes on with the same runs
    python -m studies.heads --table                                     # of what there is

One process. Each tuning and each run is written to studies/results/heads-cifar10.json when it ends; what is there is
not computed again. Runs lie below `--work`: a run that was stopped goes on there, also for more rounds.

Tuning: `--budget` settings of every arm, 20 rounds, successive halving, a fifth of the private records held out, on a
split that is not tested. An arm `like` another takes that arm's winner and changes what it is about.

Seconds of one core at 20 clients: 30 to tune what is averaged, 120 what is distilled; 4 and 30 for a run of 20 rounds.
80 clients take half as much again, and all arms with three splits about 90 minutes; until round 100 three hours more.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.io import write_atomically
from fedaux.experiments.runner import run
from fedaux.experiments.sweeps.grid import describe
from fedaux.experiments.sweeps.tuning import run_tuning
from fedaux.experiments.sweeps.tuning_plan import Tuning
from studies.heads_table import table

RESULTS = Path(__file__).parent / "results" / "heads-cifar10.json"
TUNED_ROUNDS = 20
BASE = (
    "head_only=true",
    "fraction=0.4",
    "local.optimizer=sgd",
    "local.lr=0.01",
    "distill.lr=1e-3",
    "privacy.epsilon=1.0",
)
LISTS: dict[str, tuple[Any, ...]] = {
    "local": (
        *({"optimizer": "sgd", "lr": lr} for lr in (0.003, 0.01, 0.03, 0.1)),
        *({"optimizer": "adam", "lr": lr} for lr in (1e-4, 1e-3)),
    ),
    "local.epochs": (1, 3),
    "distill.lr": (1e-4, 1e-3, 1e-2),
    "distill.epochs": (1, 3),
}
DIMENSIONS: dict[str, tuple[Any, ...]] = {"privacy.embedding_dim": (16, 32, 64, 128)}
STANDING: dict[str, tuple[Any, ...]] = {"teachers.standing": (True, False)}
OF_FEDAUX = {**STANDING, **DIMENSIONS}


@dataclass(frozen=True)
class Arm:
    """`own` are lists beside those of all methods."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    like: str = ""  # the arm whose winner it takes
    public: bool = False  # whether it distils on public data; all start from the public extractor


ALL = {"prepare": "all"}
CLOSED, RIDGE = {"head_init": "closed-form", **ALL}, {"head_init": "ridge", **ALL}
AUX: dict[str, Any] = {"own": OF_FEDAUX, "public": True}
ARMS: dict[str, Arm] = {  # what decides most comes first
    "closed form, ε = 1": Arm("closed-form+p", ALL, DIMENSIONS),
    "ridge": Arm("ridge+p", ALL),
    "discriminant": Arm("discriminant+p", ALL),
    "class means": Arm("class-means+p", ALL),
    "FedAVG+P": Arm("fedavg+p"),
    "FedAUX, ε = 1": Arm("fedaux", **AUX),
    "SCAFFOLD+P": Arm("scaffold+p"),
    "FedAUX, ε = 1, closed-form start": Arm("fedaux", CLOSED, **AUX),
    "FedAUX-SCAFFOLD, ε = 1, closed-form start": Arm("fedaux-scaffold", CLOSED, **AUX),
    "FedDyn+P": Arm("feddyn+p"),
    "SCAFFOLD+P, closed-form start": Arm("scaffold+p", CLOSED, DIMENSIONS),
    "FedAVG+P, closed-form start": Arm("fedavg+p", CLOSED, DIMENSIONS),
    "FedAUX, ε = 1, the other choice of standing": Arm("fedaux", like="FedAUX, ε = 1", public=True),
    "FedAUX, ε = 0.1": Arm("fedaux", {"privacy.epsilon": 0.1}, like="FedAUX, ε = 1", public=True),
    "FedAUX, ε = 0.1, closed-form start": Arm(
        "fedaux", {"privacy.epsilon": 0.1}, like="FedAUX, ε = 1, closed-form start", public=True
    ),
    "closed form, ε = 0.1": Arm("closed-form+p", {**ALL, "privacy.epsilon": 0.1}, DIMENSIONS),
    "FedAvgM+P": Arm("fedavgm+p"),
    "FedAdam+P": Arm("fedadam+p"),
    "FedPROX+P": Arm("fedprox+p"),
    "FedNova+P": Arm("fednova+p"),
    "FedDF+P": Arm("feddf+p", public=True),
    "FedET+P": Arm("fedet+p", own=STANDING, public=True),
    "FedBE+P": Arm("fedbe+p", public=True),
    "FedAVG+P, ridge start": Arm("fedavg+p", RIDGE),
    "SCAFFOLD+P, ridge start": Arm("scaffold+p", RIDGE),
    "FedAUX, ε = 1, ridge start": Arm("fedaux", RIDGE, **AUX),
    "ridge, 2,000 random features": Arm("ridge+p", {**ALL, "random_features": 2000}),
}


@dataclass(frozen=True)
class Study:
    work: Path
    budget: int
    found: dict[str, Any]

    def config(self, clients: int, rounds: int, settings: Mapping[str, Any], method: str, seed: int = 0) -> Config:
        overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        return Config.load(
            "studies/cifar10.toml",
            [*BASE, f"data.clients={clients}", f"rounds={rounds}", f"seed={seed}", f"method={method}", *overrides],
        )

    def rounds(self, arm: Arm, rounds: int) -> int:
        """A head that is computed from everybody's sums has them before the first round."""
        return 1 if find_method(arm.method).analytic else rounds

    def winner(self, clients: int, name: str) -> Mapping[str, Any]:
        """The settings of an arm, tuned where that has not been done."""
        arm, key = ARMS[name], f"{clients}|{name}"
        rounds = self.rounds(arm, TUNED_ROUNDS)
        if arm.like:
            tuned = dict(self.winner(clients, arm.like))
            other = {} if arm.settings else {"teachers.standing": not tuned.get("teachers.standing", False)}
            return {**tuned, **arm.settings, **other}
        if key not in self.found["tuned"]:
            base = self.config(clients, rounds, arm.settings, arm.method)
            own = {**arm.own, **{key: (value,) for key, value in arm.settings.items() if key == "head_init"}}
            grid = {"": LISTS, arm.method: own} if own else {"": LISTS}
            started = time.process_time()
            plan = Tuning.of(base, [arm.method], self.budget, grid=grid)
            tuning = run_tuning(plan, self.work / "tune" / _file_name(key))
            best = tuning.winner(arm.method)
            self.save(
                "tuned",
                key,
                settings={**arm.settings, **best.settings},
                validation=best.scores[rounds],
                tried=len(tuning.trials[arm.method]),
                seconds=time.process_time() - started,
            )
            print(key, f"{best.scores[rounds]:.3f}", describe(best.settings), flush=True)
        return dict(self.found["tuned"][key]["settings"])

    def test(self, clients: int, name: str, split: int, rounds: int) -> None:
        """One cell: the curve, bytes until each round and processor time of a run on the test records."""
        key, arm = f"{clients}|{name}|{split}", ARMS[name]
        rounds = self.rounds(arm, rounds)
        known = self.found["cells"].get(key, {"curve": [], "seconds": 0.0})
        if len(known["curve"]) >= rounds:
            return
        config = self.config(clients, rounds, self.winner(clients, name), arm.method, split)
        started = time.process_time()
        result = run(config, self.work / "test" / _file_name(key))
        history = result.state.history
        self.save(
            "cells",
            key,
            curve=result.curve,
            megabytes=[(one.bytes_sent + one.bytes_received) / 1e6 for one in history],
            seconds=known["seconds"] + time.process_time() - started,
        )
        print(key, " ".join(f"{result.curve[at - 1]:.3f}" for at in (1, 5, 20, 100) if at <= rounds), flush=True)

    def save(self, kind: str, key: str, **facts: Any) -> None:
        self.found[kind][key] = facts
        write_atomically(RESULTS, json.dumps(self.found, indent=0, ensure_ascii=False).encode())


def cells(clients: list[int], splits: int) -> Iterator[tuple[int, str, int]]:
    return ((count, name, split) for name in ARMS for count in clients for split in range(splits))


def _file_name(key: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in key)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[20, 80])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=8)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--work", type=Path, default=Path("runs/heads"))
    parser.add_argument("--table", action="store_true", help="only write the table")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"tuned": {}, "cells": {}}
    study = Study(asked.work, asked.budget, found)
    for count, name, split in [] if asked.table else cells(asked.clients, asked.splits):
        if name in asked.arms:
            study.test(count, name, split, asked.rounds)
    text = table(found, {name: arm.public for name, arm in ARMS.items()})
    RESULTS.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

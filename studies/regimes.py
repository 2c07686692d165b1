"""Whole networks on all 50,000 images of CIFAR-10, by heterogeneity: who rises above the head that is computed?

    python -m studies.artifact restore studies/networks.toml
    python -m studies.regimes                                      # α = 0.1; about 100 s of one core a round
    python -m studies.regimes --alphas 0.03 0.3 1 --arms "FedAUX" "FedAVG+P" --rounds 50 --splits 3
    python -m studies.regimes --table                              # of what there is

ResNet-8 of width 16 at the paper's preset (Adam 1e-3, one epoch, distillation at 5e-5 on 6,000 images), nothing tuned.
The curve is in the results after every round; a run that was stopped goes on below `--work`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from fedaux.config.schema import Config
from fedaux.core.io import write_atomically
from fedaux.runs.callbacks import Callback
from fedaux.runs.runner import run
from fedaux.server.run_state import RunState

RESULTS = Path(__file__).parent / "results" / "regimes-cifar10.json"
PRESET = (
    "aux.negatives=0.75",
    "data.options={test_limit = 4000}",
    "local.optimizer=adam",
    "local.lr=0.001",
    "distill.lr=5e-5",
)
PRIVATE = ("head_init=private-head", "prepare=all")
STANDING = "teachers.standing=true"
ARMS: dict[str, tuple[str, ...]] = {  # what decides most comes first
    "FedAUX, private-head start, standing": ("method=fedaux", *PRIVATE, STANDING),
    "FedAVG+P, private-head start": ("method=fedavg+p", *PRIVATE),
    "FedAVG+P": ("method=fedavg+p",),
    "FedAUX": ("method=fedaux",),
    "FedAUX, private-head start": ("method=fedaux", *PRIVATE),
    "FedDF+P": ("method=feddf+p",),
    "FedDF+P, private-head start, standing": ("method=feddf+p", *PRIVATE, STANDING),
}
SHOWN = (1, 5, 10, 20, 50)


class Growing(Callback):
    """Writes the curve to the results after every round."""

    def __init__(self, key: str) -> None:
        self.key = key

    def on_round_end(self, state: RunState) -> None:
        found = read()
        found[self.key] = [round(one.mean_accuracy, 4) for one in state.history]
        write_atomically(RESULTS, json.dumps(found, indent=0, ensure_ascii=False).encode())


def read() -> dict[str, list[float]]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def table(found: dict[str, list[float]]) -> str:
    """A row for each cell, with the mean of the last five rounds: two fifths of the clients answer, so rounds swing."""
    lines = [
        "Whole networks, CIFAR-10, 50,000 images, 20 clients, C = 0.4, ε = 1 where scores are released. Not tuned.",
        "Ridge on the same extractor, one exchange, unprotected: .488.",
        "",
        f"| α | method | split | {' | '.join(f'T = {at}' for at in SHOWN)} | last five | rounds |",
        f"| {' | '.join(['---'] * (len(SHOWN) + 5))} |",
    ]
    for key, curve in sorted(found.items()):
        alpha, arm, split = key.split("|")
        at = [f"{curve[round_ - 1]:.3f}" if round_ <= len(curve) else "" for round_ in SHOWN]
        last = sum(curve[-5:]) / len(curve[-5:])
        lines.append(f"| {alpha} | {arm} | {split} | {' | '.join(at)} | {last:.3f} | {len(curve)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alphas", nargs="+", type=float, default=[0.1])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs") / "regimes")
    parser.add_argument("--table", action="store_true", help="only write the table")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cells: list[tuple[float, str, int]] = [
        (a, arm, s) for s in range(asked.splits) for a in asked.alphas for arm in asked.arms
    ]
    for alpha, arm, split in [] if asked.table else cells:
        key = f"{alpha:g}|{arm}|{split}"
        given: list[Any] = [*PRESET, *ARMS[arm], f"data.alpha={alpha}", f"rounds={asked.rounds}", f"seed={split}"]
        if len(read().get(key, [])) < asked.rounds:
            config = Config.load("studies/networks.toml", given)
            run(config, asked.work / "".join(c if c.isalnum() else "-" for c in key), callbacks=[Growing(key)])
    RESULTS.with_suffix(".md").write_text(table(read()), encoding="utf-8")
    print(table(read()))


if __name__ == "__main__":
    main()

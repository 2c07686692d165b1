"""What pre-training costs beyond a bare PyTorch step, and how fast each network goes on this machine.

    python benchmarks/simclr.py [--threads 2] [--batch 256]

The arms of a ratio alternate within one process; min and median are of their times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.data.records import Records
from fedaux.models import build
from fedaux.models.compute import Compute, place
from fedaux.pretraining.augment import random_views
from fedaux.pretraining.simclr import SimCLR, nt_xent

NETWORKS = [
    PrototypeSpec.of("resnet8", width=16),
    PrototypeSpec.of("resnet8", width=32),
    PrototypeSpec.of("resnet8", width=64),
    PrototypeSpec("mobilenetv2"),
    PrototypeSpec("shufflenet"),
]


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def alternate(arms: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Times of each arm, taken in turn after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds + 1):
        for name, action in arms.items():
            took = seconds(action)
            if turn:
                times[name].append(took)
    return times


def arms_of(spec: PrototypeSpec, precision: str, batch: int) -> dict[str, Callable[[], object]]:
    images = Records(np.random.default_rng(0).integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8))
    model = build(spec, images.shape, 10, seed=0)
    place(model, Compute(precision=precision))
    config = PretrainConfig(batch_size=batch)
    run = SimCLR(model.features, model.width, images, config, seed=0)
    generator = torch.Generator().manual_seed(0)
    rows = np.arange(batch)
    ready = torch.cat([random_views(images.tensor(rows), generator, crop=0.2, flip=True) for _ in range(2)])
    ready = ready.contiguous(memory_format=torch.channels_last)

    def ours() -> None:
        run.optimizer.zero_grad(set_to_none=True)
        run.backward(rows, generator, seed=0)
        run.optimizer.step()

    def bare() -> None:
        run.optimizer.zero_grad(set_to_none=True)
        with run.compute.autocast():
            first, second = run.model(ready).float().chunk(2)
        nt_xent(first, second, config.temperature).backward()
        run.optimizer.step()

    run.model.train()
    return {
        "ours": ours,
        "bare": bare,
        "views": lambda: [random_views(images.tensor(rows), generator, crop=0.2, flip=True) for _ in range(2)],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    columns = [
        "network",
        "precision",
        "ours/bare, min",
        "median",
        "making views",
        "views/s",
        "100 × 24k",
        "100 × 100k images",
    ]
    print("| " + " | ".join(columns) + " |")
    print("| --- " * len(columns) + "|")
    for spec in NETWORKS:
        for precision in ("float32", "bfloat16"):
            times = alternate(arms_of(spec, precision, asked.batch), asked.rounds)
            rate = 2 * asked.batch / min(times["ours"])
            hours = [100 * 2 * images / rate / 3600 for images in (24_000, 100_000)]
            ratio = [pick(times["ours"]) / pick(times["bare"]) for pick in (min, median)]
            share = min(times["views"]) / min(times["ours"])
            cells = [spec.label, precision, *(f"{r:.2f}" for r in ratio), f"{share:.1%}", f"{rate:,.0f}"]
            print("| " + " | ".join([*cells, *(f"{h:.1f} h" for h in hours)]) + " |", flush=True)


if __name__ == "__main__":
    main()

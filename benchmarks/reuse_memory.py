"""What `fedaux.reuse_memory` saves: the pre-training of a new process, with and without
it.

    python -m benchmarks.reuse_memory DATA.npz
    python -m benchmarks.reuse_memory DATA.npz --prototype resnet8 --turns 5

The two arms take turns, each in a process of its own that pre-trains from an empty
cache. It prints the seconds of the pre-training alone (user and system), wall time and
peak memory of the process, and says whether the weights are the same to the bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

import fedaux
from benchmarks.measure import machine
from fedaux.config.schema import Config

ARMS = ("default", "reuse")
FIGURES = ("wall", "user", "system", "processor", "memory")


def pretrain(arm: str, data: str, prototype: str, images: int, epochs: int) -> None:
    """Pre-train in this process, and print the figures as JSON."""
    torch.set_num_threads(1)
    if arm == "reuse" and not fedaux.reuse_memory():
        sys.exit("this process cannot keep its memory")
    config = Config.from_dict(
        {
            "prototypes": [prototype],
            "data": {"source": "npz", "path": data, "partition": "iid", "clients": 2},
            "aux": {"limit": images},
            "pretrain": {"epochs": epochs},
        }
    )
    with tempfile.TemporaryDirectory() as cache:
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.perf_counter()
        (artifact,) = fedaux.pretrain(config, cache=Path(cache)).values()
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_SELF)
        weights = hashlib.sha256(artifact.read_bytes()).hexdigest()
    user = after.ru_utime - before.ru_utime
    system = after.ru_stime - before.ru_stime
    figures = {
        "wall": wall,
        "user": user,
        "system": system,
        "processor": user + system,
        "memory": after.ru_maxrss / 1024,
        "weights": weights,
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="images and labels in an .npz: x, y")
    parser.add_argument("--prototype", default="cnn")
    parser.add_argument("--images", type=int, default=4_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        pretrain(
            options.arm,
            options.data,
            options.prototype,
            options.images,
            options.epochs,
        )
        return
    runs: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    for _ in range(options.turns):
        for arm in ARMS:
            command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--arm", arm]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            runs[arm].append(json.loads(output.splitlines()[-1]))
    print(f"{machine()}\n{options}\n")
    print("| arm | " + " | ".join(f"{name}: least, median" for name in FIGURES) + " |")
    for arm in ARMS:
        cells = []
        for name in FIGURES:
            values = [run[name] for run in runs[arm]]
            cells.append(f"{min(values):.1f}, {median(values):.1f}")
        print(f"| {arm} | " + " | ".join(cells) + " |")
    weights = {run["weights"] for arm in ARMS for run in runs[arm]}
    print("weights:", "the same to the bit" if len(weights) == 1 else "THEY DIFFER")


if __name__ == "__main__":
    main()

"""Where the time of a real round goes: a SuperLink and three SuperNodes on this
machine, and the parts by themselves.

PYTHONPATH=tests python benchmarks/deployment.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux import run
from fedaux.server.run_state import RunState
from helpers.harness import SETTINGS, Servers
from helpers.three_sites import CONFIG, Federation

PARTS = {
    "Python itself": "pass",
    "+ Flower": "import flwr.clientapp",
    "+ PyTorch": "import flwr.clientapp, torch",
    "+ fedaux's client": "import fedaux.flower.client_app",
}


def started(code: str) -> float:
    """Seconds for a process that runs this, the best of three."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            env={**SETTINGS, "PATH": ""},
            capture_output=True,
        )
        times.append(time.perf_counter() - begun)
    return min(times)


def main() -> None:
    config = replace(CONFIG, rounds=5)
    with (
        tempfile.TemporaryDirectory() as folder,
        Servers(Path(folder) / "servers") as servers,
    ):
        here = run(config, Path(folder) / "here", cache=Path(folder) / "cache")
        made = Federation(Path(folder), servers, config)
        made.up()
        made.begin()
        servers.finish(seconds=600)
        there = RunState.load(made.out)
    for name, code in PARTS.items():
        print(f"{name}: {started(code):.2f} s")
    for name, state in (("in process", here.state), ("three SuperNodes, TLS", there)):
        seconds = [sum(result.seconds.values()) for result in state.history]
        print(
            f"a round {name}: min {min(seconds):.2f} s, median "
            f"{np.median(seconds):.2f} s"
        )


if __name__ == "__main__":
    main()

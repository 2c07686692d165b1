"""B8: peak memory against clients a round and against registered clients, each in a
process of its own.

PYTHONPATH=tests python -m benchmarks B8
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import Row
from fedaux import run
from fedaux.config.presets import DEMO
from fedaux.config.sections import AuxConfig, FederationConfig
from fedaux.data.federated import client_names
from fedaux.data.records import Records
from fedaux.runs.session import run_in_folder
from fedaux.server.run_state import STATE_FILE, RunState
from fedaux.server.server import Server

SIZES = {"asked": (10, 100, 1000), "registered": (10**2, 10**4, 10**6)}


def asked(clients: int, folder: Path) -> int:
    """Two rounds in linear mode, teachers on the server, over in-process clients that
    are all asked.
    """
    data = replace(DEMO.data, clients=clients, partition="iid", test_fraction=0.1)
    config = replace(
        DEMO, rounds=2, head_only=True, data=data, aux=AuxConfig(fraction=0.2)
    )
    config = replace(config, pretrain=replace(DEMO.pretrain, epochs=0))
    state = run(config, folder, cache=folder / "cache").state
    assert [len(result.client_metrics) for result in state.history] == [clients] * 2
    return (folder / STATE_FILE).stat().st_size


def scripted_server(clients: int, rounds: int, folder: Path) -> Server:
    """Of a run that asks at most 100 clients a round out of so many names; `Scripted`
    answers for them.
    """
    from helpers.scripted import CONFIG

    data = replace(CONFIG.data, clients=clients)
    policy = FederationConfig(quorum=0.5)
    config = replace(
        CONFIG,
        rounds=rounds,
        fraction=min(1.0, 100 / clients),
        data=data,
        federation=policy,
    )
    rng = np.random.default_rng(0)
    test = Records(rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3)
    aux = Records(rng.normal(size=(50, 4)).astype(np.float32))
    return Server.of(config, aux, test, 3, client_names(config), folder / "cache")


def registered(clients: int, folder: Path) -> int:
    """Three rounds of at most 100 clients out of so many names."""
    from helpers.scripted import Scripted

    state: RunState = run_in_folder(
        folder, scripted_server(clients, 3, folder), Scripted(), None
    ).state
    assert [len(result.client_metrics) for result in state.history] == [100] * 3
    return (folder / STATE_FILE).stat().st_size


def probe(kind: str, clients: int) -> tuple[float, int]:
    """(peak MB of a fresh process, bytes of the state that it replaces in every
    round).
    """
    words = [sys.executable, "-m", "benchmarks.memory", kind, str(clients)]
    peak, size = subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.split()[-2:]
    return float(peak), int(size)


def rows() -> Iterator[Row]:
    # bytes of peak memory for each client
    limits = {"asked": 40e3, "registered": 400.0}
    settings = {
        "asked": "clients a round, digits, linear mode, teachers on the server",
        "registered": "registered clients, 100 a round",
    }
    for kind, sizes in SIZES.items():
        peaks, states = zip(*(probe(kind, clients) for clients in sizes), strict=True)
        slope = 2**20 * float(np.polyfit(sizes, peaks, 1)[0])
        figures = f"{' → '.join(f'{peak:.0f}' for peak in peaks)} MB, {slope:,.0f} bytes a client; "
        figures += f"state {' → '.join(f'{size:,}' for size in states)} bytes"
        flat = max(states) <= 1.1 * min(states)
        target = f"≤ {limits[kind]:,.0f} bytes a client, state flat"
        yield Row(
            "B8",
            f"{' → '.join(f'{n:,}' for n in sizes)} {settings[kind]}",
            target,
            figures,
            flat and slope <= limits[kind],
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        state_size = {"asked": asked, "registered": registered}[sys.argv[1]](
            int(sys.argv[2]), Path(place)
        )
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, state_size)

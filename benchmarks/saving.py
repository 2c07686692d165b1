"""B10: what saving costs, in round 10 and in round 200, and as a share of a round of
digits' CNN in linear mode.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.measure import Row, seconds
from fedaux import run
from fedaux.config.presets import DEMO
from fedaux.core.accounts import Account
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.messages import Release
from fedaux.runs.callbacks import Callback, JsonLines
from fedaux.server.run_state import RunState
from fedaux.server.run_writer import RunWriter

CLIENTS, ROUNDS, VALUES = 100, 200, 360  # a round; in all; numbers of a release
CONFIG = replace(
    DEMO,
    rounds=6,
    head_only=True,
    data=replace(DEMO.data, clients=CLIENTS, partition="iid"),
    seed=0,
)
ACCOUNT = Account(0.5, 1e-5, "replace-one", "record", 1)
PHASES = ("score", "weigh", "train", "teach", "distil", "test")


def release(client: str) -> Release:
    facts = (
        "class-embedding",
        50,
        1.0,
        1e-5,
        "replace-one",
        "analytic",
        2.0**21,
        1e7,
        2.0**-21,
        False,
    )
    values = np.random.default_rng(len(client)).integers(-(2**30), 2**30, VALUES)
    return Release(client, *facts, ACCOUNT.to_json(), {"values": values})


def result(number: int, clients: list[str]) -> RoundResult:
    return RoundResult(
        number,
        {"cnn": 0.123456789},
        {
            client: ClientMetrics(50, 0.123456789, 0.0123456789, 0.0123456789)
            for client in clients
        },
        unprotected_models=CLIENTS,
        epsilon=1.0,
        distill_loss=0.123456789,
        effective_teachers=33.3,
        update_norms={"cnn": {"parameters": 0.123456789}},
        seconds=dict.fromkeys(PHASES, 0.123456789),
        confusion={"cnn": np.full((10, 10), 36).tolist()},
    )


def rounds_of_saving(
    fresh: bool, folder: Path
) -> tuple[list[tuple[float, float]], float]:
    """(wall and processor seconds of saving each round, processor seconds of the
    privacy line after the last).

    `fresh`: every round has new clients.
    """
    weights = {"cnn": {"parameters": np.zeros(650, np.float32)}}
    extractors = {"cnn": {"parameters": np.zeros(30_000, np.float32)}}
    state = RunState(
        CONFIG, 0, weights, extractors, {"cnn": {"basis": np.zeros((64, 12))}}
    )
    writer = RunWriter(folder)
    lines = JsonLines()
    times = []
    writer.save(state)
    lines.on_run_start(CONFIG, folder, None)
    for number in range(1, ROUNDS + 1):
        first = CLIENTS * number if fresh else 0
        clients = [f"client-{first + index:06d}" for index in range(CLIENTS)]
        new = {
            client: release(client)
            for client in clients
            if client not in state.releases
        }
        asked = replace(state, selected=tuple(clients)).with_releases(new)
        state = asked.with_accounts(clients, dict.fromkeys(clients, ACCOUNT)).after(
            weights, result(number, clients)
        )

        def save(
            asked: RunState | None = asked if new else None, state: RunState = state
        ) -> None:
            if asked:
                writer.save(asked)
            writer.save(state)
            lines.on_round_end(state)

        times.append(seconds(save))
    return times, min(seconds(lambda: state.ledger.summary())[1] for _ in range(7))


class Clock(Callback):
    """Processor seconds from round to round."""

    def __init__(self) -> None:
        self.times = list[float]()

    def on_round_end(self, state: RunState) -> None:
        self.times.append(time.process_time())


def seconds_of_a_round(fresh: bool, folder: Path) -> float:
    """`fresh`: out of six times as many clients, most of whom make their release in
    that round.
    """
    clients = 6 * CLIENTS if fresh else CLIENTS
    config = replace(
        CONFIG,
        data=replace(CONFIG.data, clients=clients),
        fraction=CLIENTS / clients,
    )
    clock = Clock()
    run(config, folder, callbacks=[clock])
    return float(min(np.diff(clock.times)))


def rows() -> Iterator[Row]:
    for fresh in (False, True):
        with tempfile.TemporaryDirectory() as place:
            whole = seconds_of_a_round(fresh, Path(place) / "run")
            repeats = [
                rounds_of_saving(fresh, Path(place) / str(repeat))
                for repeat in range(3)
            ]
        first, last = (
            [sample for times, _ in repeats for sample in times[end - 20 : end]]
            for end in (20, ROUNDS)
        )
        early, late = (
            min(processor for _, processor in samples) for samples in (first, last)
        )
        wall = min(wall for wall, _ in last)
        line = min(line for _, line in repeats)
        share = (late + line) / whole
        growth = late / early
        figures = (
            f"processor {1000 * late:.1f} ms saving, {growth:.2f} × round 10, and "
            f"{1000 * line:.1f} ms for the privacy line of "
            f"{CLIENTS * ROUNDS if fresh else CLIENTS:,} clients, {share:.1%} of "
            f"{1000 * whole:.0f} ms; saving's wall {1000 * wall:.1f} ms"
        )
        setting = f"round {ROUNDS}, {CLIENTS} {'new' if fresh else 'known'} clients a round; digits, cnn, linear mode"
        yield Row(
            "B10",
            setting,
            "≤ 2 % of a round, ≤ 1.1 × round 10",
            figures,
            share <= 0.02 and growth <= 1.1,
        )

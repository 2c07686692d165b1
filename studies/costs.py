"""What methods cost: bytes both ways and time by phase, from the histories of their
runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean

from fedaux.core.io import write_atomically
from fedaux.core.results import RoundResult
from fedaux.report.tables import markdown
from fedaux.server.run_state import RunState
from fedaux.sweeps.results import SweepResult

PHASES = ("prepare", "score", "weigh", "teach", "distil", "test")
FIRST = ("prepare", "score")  # phases of the first round only


def round_costs(histories: Sequence[Sequence[RoundResult]]) -> dict[str, float]:
    """Return the mean cost over runs: megabytes of the first and of the last round, and
    the time of each phase.

    Times are in units of local training in the same round, which cancels what else the
    machine was doing; its own seconds are by the clock. Phases of preparation are those
    of the first round. A run has at least two rounds.
    """
    first = [history[0] for history in histories]
    last = [history[-1] for history in histories]
    costs = {}
    for way, field in (("down", "bytes_sent"), ("up", "bytes_received")):
        for when, rounds in (("round 1", first), ("last", last)):
            megabytes = [getattr(result, field) / 1e6 for result in rounds]
            costs[f"MB {way}, {when}"] = fmean(megabytes)
    costs["s of training"] = fmean([result.seconds["train"] for result in last])
    for phase in PHASES:
        rounds = first if phase in FIRST else last
        shares = [
            result.seconds.get(phase, 0.0) / result.seconds["train"]
            for result in rounds
        ]
        costs[phase] = fmean(shares)
    return costs


def study(result: SweepResult) -> str:
    """Write costs.json and costs.md of a sweep's runs, and return the table."""
    costs = {}
    for arm in result.arms:
        histories = [RunState.load(folder).history for folder in arm.folders]
        costs[arm.label] = round_costs(histories)
    header = ("method", *costs[result.arms[0].label])
    rows = []
    for label, values in costs.items():
        rows.append((label, *(f"{value:.2f}" for value in values.values())))
    table = markdown(rows, header)
    as_json = json.dumps(costs, indent=1, ensure_ascii=False)
    write_atomically(result.folder / "costs.json", as_json.encode())
    write_atomically(result.folder / "costs.md", table.encode())
    return table

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
from fedaux.sweeps.engine import SweepResult

PHASES = ("prepare", "score", "weigh", "teach", "distil", "test")
FIRST = ("prepare", "score")  # phases of the first round only


def round_costs(histories: Sequence[Sequence[RoundResult]]) -> dict[str, float]:
    """Return the mean cost over runs: megabytes of the first and of the last round, and
    the time of each phase.

    Times are in units of local training in the same round, which cancels what else the
    machine was doing; its own seconds are by the clock. Phases of preparation are those
    of the first round. A run has at least two rounds.
    """
    first, later = (
        [history[0] for history in histories],
        [history[-1] for history in histories],
    )
    megabytes = {
        f"MB {way}, {when}": fmean(
            [getattr(one, f"bytes_{key}") / 1e6 for one in rounds]
        )
        for way, key in (("down", "sent"), ("up", "received"))
        for when, rounds in (("round 1", first), ("last", later))
    }
    training = {"s of training": fmean([one.seconds["train"] for one in later])}
    shares = {
        phase: fmean(
            [
                one.seconds.get(phase, 0.0) / one.seconds["train"]
                for one in (first if phase in FIRST else later)
            ]
        )
        for phase in PHASES
    }
    return {**megabytes, **training, **shares}


def study(result: SweepResult) -> str:
    """Write costs.json and costs.md of a sweep's runs, and return the table."""
    found = {
        arm.label: round_costs(
            [RunState.load(folder).history for folder in arm.folders]
        )
        for arm in result.arms
    }
    header = ("method", *next(iter(found.values())))
    rows = [
        (label, *(f"{value:.2f}" for value in costs.values()))
        for label, costs in found.items()
    ]
    text = markdown(rows, header)
    write_atomically(
        result.folder / "costs.json",
        json.dumps(found, indent=1, ensure_ascii=False).encode(),
    )
    write_atomically(result.folder / "costs.md", text.encode())
    return text

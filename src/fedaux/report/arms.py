"""Runs side by side: runs below any folders that differ only in their seed form one
arm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.config.schema import flatten
from fedaux.core.metrics import METRIC_NAMES
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import STATE_FILE, RunState, StateError


@dataclass(frozen=True, eq=False)
class ArmResult:
    """The finished runs of one arm: seeds, folders and rows of `curves`, (seeds,
    rounds), in the same order.
    """

    label: str
    settings: dict[str, Any]  # what makes the arm differ, by dotted key
    labels: dict[str, str]  # the same for readers: FedAUX, α = 0.01
    seeds: tuple[int, ...]
    folders: tuple[Path, ...]
    curves: NDArray[np.float64]
    # the statement of the first run, where anything was released under noise
    privacy: str = ""
    warning: str = ""  # where a run of it ended with a collapsed model
    note: str = ""  # where some of its runs are shorter than others
    privacy_line: str = ""  # of the first run, in one line
    # of each run and round, the mean over prototypes
    metrics: tuple[tuple[dict[str, float], ...], ...] = ()

    def to_dict(self, base: Path) -> dict[str, Any]:
        """Return the arm for JSON, with folders relative to `base`."""
        return {
            "label": self.label,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "folders": [str(folder.relative_to(base)) for folder in self.folders],
            "curves": self.curves.tolist(),
            "privacy": self.privacy,
        }


def require_rounds(state: RunState, folder: Path) -> RunState:
    """The state, if there is a round to report."""
    if not state.history:
        raise StateError(
            f"{folder} has not finished a round yet; continue with `fedaux resume "
            f"{folder}`."
        )
    return state


def is_task(key: str) -> bool:
    """Whether a setting makes the problem another one, so that no accuracy competes
    with one under another value.
    """
    return key.startswith(("data.", "aux.")) or key in ("rounds", "fraction")


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Folders of runs among and below `paths`."""
    found: dict[Path, None] = {}
    for path in paths:
        below = (
            [path]
            if (path / STATE_FILE).is_file()
            else sorted(file.parent for file in path.rglob(STATE_FILE))
        )
        if not below:
            raise StateError(
                f"{path} holds no run ({STATE_FILE} is missing there and below); start one "
                "with `fedaux run`."
            )
        found.update(dict.fromkeys(below))
    return list(found)


def group(folders: Sequence[Path]) -> list[ArmResult]:
    """Arms in order of first appearance, named by what makes them differ; methods on
    the same problem that each have settings of their own, as after tuning, by the
    method alone.

    Where only some runs of an arm are finished, its curves end with the shortest, and
    its note says so.
    """
    results = [
        FinishedRun(require_rounds(RunState.load(folder), folder), folder)
        for folder in folders
    ]
    tables = [flatten(result.state.config) for result in results]
    differing = [
        key
        for key in tables[0]
        if len({json.dumps(table.get(key)) for table in tables}) > 1
    ]
    keys = [key for key in differing if key != "seed"]
    arms: dict[str, list[FinishedRun]] = {}
    for result, table in zip(results, tables, strict=True):
        arms.setdefault(json.dumps([table[key] for key in keys]), []).append(result)
    methods = {runs[0].state.config.method for runs in arms.values()}
    tuned = len(methods) == len(arms) and not any(map(is_task, keys))
    return [
        _arm(runs, keys, ["method"] if tuned and "method" in keys else keys)
        for runs in arms.values()
    ]


def collapsed(runs: Sequence[FinishedRun]) -> str:
    """The warning of the first run of an arm that collapsed, and how many did."""
    warnings = [text for text in (run.warning for run in runs) if text]
    count = f"{len(warnings)} of {len(runs)} runs: " if len(runs) > 1 else ""
    return f"{count}{warnings[0]}" if warnings else ""


def round_metrics(run: FinishedRun, rounds: int) -> tuple[dict[str, float], ...]:
    """All metrics of the first rounds beside the accuracy."""
    found = (
        {key: result.mean_metric(key) for key in METRIC_NAMES}
        for result in run.state.history[:rounds]
    )
    return tuple(
        {key: value for key, value in one.items() if value is not None} for one in found
    )


def _arm(
    runs: Sequence[FinishedRun], keys: Sequence[str], named: Sequence[str]
) -> ArmResult:
    rounds, wanted = (
        min(len(run.curve) for run in runs),
        max(run.state.config.rounds for run in runs),
    )
    short = [
        f"seed {run.state.config.seed} ({len(run.curve)})"
        for run in runs
        if len(run.curve) < wanted
    ]
    table, method = (
        flatten(runs[0].state.config),
        find_method(runs[0].state.config.method).label,
    )
    labels = {
        key: method if key == "method" else f"{key} = {table[key]}" for key in named
    }
    return ArmResult(
        ", ".join([method, *(text for key, text in labels.items() if key != "method")]),
        {key: table[key] for key in keys},
        labels,
        tuple(run.state.config.seed for run in runs),
        tuple(run.folder for run in runs),
        np.array([run.curve[:rounds] for run in runs]),
        runs[0].statement,
        collapsed(runs),
        f"{len(short)} of {len(runs)} runs not finished, cut to {rounds} rounds: "
        f"{', '.join(short)}"
        if short
        else "",
        runs[0].ledger.summary(),
        tuple(round_metrics(run, rounds) for run in runs),
    )

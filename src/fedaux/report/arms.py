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
from fedaux.report.terminal import plural
from fedaux.server.result import FinishedRun, fall_warning
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
    # before round 1, of each run; () where one of them trains nothing
    starts: tuple[float, ...] = ()
    fall: str = ""  # where a round of the first run is below its start
    # of each run and round, the mean over prototypes
    metrics: tuple[tuple[dict[str, float], ...], ...] = ()

    @property
    def mean_accuracy(self) -> float:
        """After the last round, mean over seeds."""
        return float(self.curves[:, -1].mean())

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
            f"Cannot report {folder}: it has not finished a round yet. Continue with "
            f"`fedaux resume {folder}`."
        )
    return state


def is_task(key: str) -> bool:
    """Whether a setting makes the problem another one, so that no accuracy competes
    with one under another value.
    """
    return key.startswith(("data.", "aux.")) or key in ("rounds", "fraction")


def naming_settings(arms: Sequence[ArmResult]) -> list[str]:
    """The settings that name the arms. The method comes first, if it is one."""
    if not arms:
        return []
    return sorted(arms[0].labels, key=lambda key: key != "method")


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Folders of runs among and below `paths`."""
    folders: dict[Path, None] = {}
    for path in paths:
        if (path / STATE_FILE).is_file():
            folders[path] = None
            continue
        files = sorted(path.rglob(STATE_FILE))
        if not files:
            raise StateError(
                f"Cannot report: {path} holds no run ({STATE_FILE} is missing there "
                "and below). Start one with `fedaux run`."
            )
        folders.update(dict.fromkeys(file.parent for file in files))
    return list(folders)


def group(folders: Sequence[Path]) -> list[ArmResult]:
    """Arms in order of first appearance, named by what makes them differ; methods on
    the same problem that each have settings of their own, as after tuning, by the
    method alone.

    Where only some runs of an arm are finished, its curves end with the shortest, and
    its note says so.
    """
    runs = [_load(folder) for folder in folders]
    tables = [flatten(run.state.config) for run in runs]
    keys = [key for key in _differing_settings(tables) if key != "seed"]
    arms: dict[str, list[FinishedRun]] = {}
    for run, settings in zip(runs, tables, strict=True):
        identity = json.dumps([settings[key] for key in keys])
        arms.setdefault(identity, []).append(run)
    methods = {run.state.config.method for run in runs}
    one_arm_a_method = len(methods) == len(arms)
    same_problem = not any(map(is_task, keys))
    naming = keys
    if "method" in keys and one_arm_a_method and same_problem:
        naming = ["method"]
    return [_arm(arm, keys, naming) for arm in arms.values()]


def starts_of(runs: Sequence[FinishedRun]) -> tuple[float, ...]:
    """The accuracy of each run before round 1, or () where one of them has none."""
    starts = tuple(run.start for run in runs if run.start is not None)
    return starts if len(starts) == len(runs) else ()


def collapsed(runs: Sequence[FinishedRun]) -> str:
    """The warning of the first run of an arm that collapsed, and how many did."""
    warnings = [run.warning for run in runs if run.warning]
    if not warnings:
        return ""
    if len(runs) == 1:
        return warnings[0]
    return f"{len(warnings)} of {len(runs)} runs: {warnings[0]}"


def metrics_by_round(run: FinishedRun, rounds: int) -> tuple[dict[str, float], ...]:
    """All metrics of the first rounds next to the accuracy."""
    metrics: list[dict[str, float]] = []
    for result in run.state.history[:rounds]:
        means = {name: result.mean_metric(name) for name in METRIC_NAMES}
        metrics.append({name: mean for name, mean in means.items() if mean is not None})
    return tuple(metrics)


def _load(folder: Path) -> FinishedRun:
    state = require_rounds(RunState.load(folder), folder)
    run = FinishedRun(state, folder)
    if not run.curve:
        raise StateError(
            f"Cannot compare {folder}: its server had no test data, so it has no "
            f"accuracy by round. Read its page: `fedaux report {folder}`."
        )
    return run


def _differing_settings(tables: Sequence[dict[str, Any]]) -> list[str]:
    differing: list[str] = []
    for key in tables[0]:
        values = {json.dumps(settings.get(key)) for settings in tables}
        if len(values) > 1:
            differing.append(key)
    return differing


def _arm(
    runs: Sequence[FinishedRun], keys: Sequence[str], naming: Sequence[str]
) -> ArmResult:
    """`keys` make the arm differ from others, `naming` are those in its label."""
    first = runs[0]
    rounds = min(len(run.curve) for run in runs)
    settings = flatten(first.state.config)
    labels = {key: f"{key} = {settings[key]}" for key in naming}
    method = find_method(first.state.config.method).label
    other_labels = [label for key, label in labels.items() if key != "method"]
    if "method" in labels:
        labels["method"] = method
    seeds = tuple(run.state.config.seed for run in runs)
    folders = tuple(run.folder for run in runs)
    curves = np.array([run.curve[:rounds] for run in runs])
    metrics = tuple(metrics_by_round(run, rounds) for run in runs)
    return ArmResult(
        label=", ".join([method, *other_labels]),
        settings={key: settings[key] for key in keys},
        labels=labels,
        seeds=seeds,
        folders=folders,
        curves=curves,
        privacy=first.statement,
        warning=collapsed(runs),
        note=_short_runs(runs, rounds),
        privacy_line=first.ledger.summary(),
        starts=starts_of(runs),
        fall=fall_warning(first.state.history),
        metrics=metrics,
    )


def _short_runs(runs: Sequence[FinishedRun], rounds: int) -> str:
    """Say which runs are not finished, if any."""
    wanted = max(run.state.config.rounds for run in runs)
    seeds = [
        f"seed {run.state.config.seed} ({len(run.curve)})"
        for run in runs
        if len(run.curve) < wanted
    ]
    if not seeds:
        return ""
    count = f"{len(seeds)} of {len(runs)} runs not finished"
    return f"{count}, cut to {plural(rounds, 'round')}: {', '.join(seeds)}"

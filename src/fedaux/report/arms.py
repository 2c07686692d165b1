"""Which runs belong together: found below any folders, those that differ in nothing but their seed are one arm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.algorithms.results import Result
from fedaux.algorithms.run_state import FILE, RunState, StateError
from fedaux.config.methods import find_method
from fedaux.config.schema import flatten
from fedaux.report.facts import begun


@dataclass(frozen=True, eq=False)
class FoundArm:
    label: str
    folders: tuple[Path, ...]
    curves: NDArray[np.float64]


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Folders of runs among and below `paths`."""
    found: dict[Path, None] = {}
    for path in paths:
        below = [path] if (path / FILE).is_file() else sorted(one.parent for one in path.rglob(FILE))
        if not below:
            raise StateError(f"{path} holds no run ({FILE} is missing there and below); start one with `fedaux run`.")
        found.update(dict.fromkeys(below))
    return list(found)


def group(folders: Sequence[Path]) -> list[FoundArm]:
    """Arms in order of first appearance, named by what makes them differ; curves are cut to the shortest run."""
    results = [Result(begun(RunState.load(folder), folder), folder) for folder in folders]
    settings = [{k: v for k, v in flatten(one.state.config).items() if k != "seed"} for one in results]
    differing = [key for key in settings[0] if len({json.dumps(one.get(key)) for one in settings}) > 1]
    rounds = min(len(one.curve) for one in results)
    arms: dict[str, list[Result]] = {}
    for one, table in zip(results, settings, strict=True):
        arms.setdefault(_label(table, differing), []).append(one)
    return [
        FoundArm(label, tuple(one.folder for one in each), np.array([one.curve[:rounds] for one in each]))
        for label, each in arms.items()
    ]


def _label(table: dict[str, Any], differing: Sequence[str]) -> str:
    words = [f"{key} = {table[key]}" for key in differing if key not in ("method", "rounds")]
    return ", ".join([find_method(table["method"]).label, *words])

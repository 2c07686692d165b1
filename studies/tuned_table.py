"""The tables of a tuned study: accuracies over splits, and paired differences with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from fedaux.report.tables import markdown
from fedaux.sweeps.arms import describe

ROUNDS = (1, 5, 20, 100)


def table(found: Mapping[str, Any], arms: Sequence[str], cases: Sequence[str]) -> str:
    known = {key.split("|")[0] for key in found["cells"]}
    return "\n".join(part for case in cases if case in known for part in _of_case(found, arms, case))


def _of_case(found: Mapping[str, Any], arms: Sequence[str], case: str) -> list[str]:
    curves = {name: _curves(found, case, name) for name in arms}
    curves = {name: runs for name, runs in curves.items() if runs}
    rounds = [at for at in ROUNDS if any(len(run) >= at for runs in curves.values() for run in runs.values())]
    header = ("method", *(f"T = {at}" for at in rounds), "MB in 20 rounds", "processor s", "n")
    rows = [(name, *(_cell(runs, at) for at in rounds), *_costs(found, case, name)) for name, runs in curves.items()]
    tuned = [
        f"- {name}: {describe(found['tuned'][f'{case}|{name}']['settings'])} "
        f"(validation {found['tuned'][f'{case}|{name}']['validation']:.3f})"
        for name in curves
        if f"{case}|{name}" in found["tuned"]
    ]
    return [
        f"## {case} clients\n" if case.isdigit() else f"## {case}\n",
        markdown(rows, header),
        "Winners of the tuning; what is not named is as in `BASE` of the study:\n",
        *tuned,
        "\nPaired differences, mean and 95 % interval (t) over splits:\n",
        markdown(_differences(curves, rounds), ("difference", *(f"T = {at}" for at in rounds))),
    ]


def _curves(found: Mapping[str, Any], case: str, name: str) -> dict[str, list[float]]:
    """By split."""
    prefix = f"{case}|{name}|"
    return {key.removeprefix(prefix): cell["curve"] for key, cell in found["cells"].items() if key.startswith(prefix)}


def _at(run: list[float], at: int) -> float | None:
    """A computed head has one round, and stays."""
    return run[0] if len(run) == 1 else run[at - 1] if len(run) >= at else None


def _cell(runs: Mapping[str, list[float]], at: int) -> str:
    values = [value for value in (_at(run, at) for run in runs.values()) if value is not None]
    if not values:
        return ""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def _costs(found: Mapping[str, Any], case: str, name: str) -> tuple[str, str, str]:
    cells = [cell for key, cell in found["cells"].items() if key.startswith(f"{case}|{name}|")]
    sent = np.mean([sum(cell["megabytes"][:20]) for cell in cells])
    return f"{sent:.2f}", f"{np.mean([cell['seconds'] for cell in cells]):.0f}", str(len(cells))


def _differences(curves: Mapping[str, Mapping[str, list[float]]], rounds: list[int]) -> list[tuple[str, ...]]:
    """Of every FedAUX from every method that trains and is not FedAUX."""
    ours = [name for name in curves if name.startswith("FedAUX")]
    rivals = [name for name in curves if name not in ours and any(len(run) > 1 for run in curves[name].values())]
    return [
        (f"{name} − {rival}", *(_paired(curves[name], curves[rival], at) for at in rounds))
        for name in ours
        for rival in rivals
        if name.endswith("start") == rival.endswith("start")
    ]


def _paired(ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]], at: int) -> str:
    pairs = [(_at(run, at), _at(theirs[split], at)) for split, run in ours.items() if split in theirs]
    values = np.array([a - b for a, b in pairs if a is not None and b is not None])
    return f"{values.mean():+.3f} ± {half_width(values):.3f}" if len(values) > 1 else ""


def half_width(values: NDArray[np.float64]) -> float:
    """Of the 95 % interval of their mean."""
    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))

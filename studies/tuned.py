"""A study that gives every method the same number of settings on validation data and
tests the winners over splits.

One process. Each tuning and each run is written to the results when it ends; what is
there is not computed again. Runs lie below `--work`: a run that was stopped goes on
there, also for more rounds.

Tuning: successive halving over `--budget` settings of every arm, a fifth of the private
records held out, on a split that is not tested. An arm `like` another takes that arm's
winner and changes what it is about.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.io import write_atomically
from fedaux.report.tables import markdown
from fedaux.runs.runner import run
from fedaux.sweeps.grid import describe
from fedaux.sweeps.tuning import Tuning, run_tuning

RESULTS = Path(__file__).parent / "results"
SHOWN = (1, 5, 20, 100)  # rounds
STEADY = 5  # rounds whose mean is shown too, since accuracy swings


@dataclass(frozen=True)
class Arm:
    """`own` are lists beside those of all methods."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    like: str = ""  # the arm whose winner it takes
    tuned_rounds: int = 0  # as the design says, or so many
    fixed: bool = False  # its settings stand: nothing is tuned


@dataclass(frozen=True)
class Design:
    name: str  # of the results
    config: str
    base: tuple[str, ...]  # overrides of the config
    cases: Mapping[str, tuple[str, ...]]  # further overrides, by name: one table each
    lists: Mapping[str, tuple[Any, ...]]  # what is tuned, whatever the method
    arms: Mapping[str, Arm]  # what decides most comes first
    tuned_rounds: int
    budget: int
    shown: tuple[int, ...] = SHOWN  # rounds in the table
    # cases that take another case's winners
    tuned_on: Mapping[str, str] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def found(self) -> dict[str, Any]:
        path = self.results
        return (
            json.loads(path.read_text(encoding="utf-8"))
            if path.is_file()
            else {"tuned": {}, "cells": {}}
        )

    def write_table(self, found: Mapping[str, Any]) -> str:
        known = {key.split("|")[0] for key in found["cells"]}
        cases = [
            _of_case(found, list(self.arms), case, self.shown)
            for case in self.cases
            if case in known
        ]
        text = "\n".join(part for parts in cases for part in parts)
        self.results.with_suffix(".md").write_text(text, encoding="utf-8")
        return text


@dataclass(frozen=True)
class Study:
    design: Design
    work: Path
    budget: int
    found: dict[str, Any]

    def config(
        self,
        case: str,
        rounds: int,
        settings: Mapping[str, Any],
        method: str,
        seed: int = 0,
    ) -> Config:
        overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        given = (
            *self.design.base,
            *self.design.cases[case],
            f"rounds={rounds}",
            f"seed={seed}",
            f"method={method}",
        )
        return Config.load(self.design.config, [*given, *overrides])

    def rounds(self, arm: Arm, rounds: int) -> int:
        """A head that is computed from everybody's sums has them before the first
        round.
        """
        return 1 if find_method(arm.method).analytic else rounds

    def winner(self, case: str, name: str) -> Mapping[str, Any]:
        """The settings of an arm, tuned where that has not been done."""
        case = self.design.tuned_on.get(case, case)
        arm, key = self.design.arms[name], f"{case}|{name}"
        rounds = self.rounds(arm, arm.tuned_rounds or self.design.tuned_rounds)
        if arm.fixed:
            return arm.settings
        if arm.like:
            tuned = dict(self.winner(case, arm.like))
            other = (
                {}
                if arm.settings
                else {"teachers.standing": not tuned.get("teachers.standing", False)}
            )
            return {**tuned, **arm.settings, **other}
        if key not in self.found["tuned"]:
            base = self.config(case, rounds, arm.settings, arm.method)
            own = {
                **arm.own,
                **{
                    key: (value,)
                    for key, value in arm.settings.items()
                    if key == "head_init"
                },
            }
            grid = (
                {"": self.design.lists, arm.method: own}
                if own
                else {"": self.design.lists}
            )
            started = time.process_time()
            plan = Tuning.of(base, [arm.method], self.budget, grid=grid)
            tuning = run_tuning(plan, self.work / "tune" / _file_name(key))
            best = tuning.winner(arm.method)
            self.save(
                "tuned",
                key,
                settings={**arm.settings, **best.settings},
                validation=best.scores[rounds],
                tried=len(tuning.trials[arm.method]),
                seconds=time.process_time() - started,
            )
            print(
                key, f"{best.scores[rounds]:.3f}", describe(best.settings), flush=True
            )
        return dict(self.found["tuned"][key]["settings"])

    def test(self, case: str, name: str, split: int, rounds: int) -> None:
        """One cell: the curve, bytes until each round and processor time of a run on
        the test records.
        """
        key, arm = f"{case}|{name}|{split}", self.design.arms[name]
        rounds = self.rounds(arm, rounds)
        known = self.found["cells"].get(key, {"curve": [], "seconds": 0.0})
        if len(known["curve"]) >= rounds:
            return
        config = self.config(case, rounds, self.winner(case, name), arm.method, split)
        started = time.process_time()
        result = run(config, self.work / "test" / _file_name(key))
        history = result.state.history
        self.save(
            "cells",
            key,
            curve=result.curve,
            megabytes=[(one.bytes_sent + one.bytes_received) / 1e6 for one in history],
            seconds=known["seconds"] + time.process_time() - started,
        )
        print(
            key,
            " ".join(
                f"{result.curve[at - 1]:.3f}"
                for at in self.design.shown
                if at <= rounds
            ),
            flush=True,
        )

    def save(self, kind: str, key: str, **facts: Any) -> None:
        self.found.update(self.design.found())  # another process may have written
        self.found[kind][key] = facts
        write_atomically(
            self.design.results,
            json.dumps(self.found, indent=0, ensure_ascii=False).encode(),
        )


def _file_name(key: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in key)


def _of_case(
    found: Mapping[str, Any], arms: Sequence[str], case: str, shown: Sequence[int]
) -> list[str]:
    curves = {name: curves_of(found, case, name) for name in arms}
    curves = {name: runs for name, runs in curves.items() if runs}
    rounds = [
        at
        for at in shown
        if any(len(run) >= at for runs in curves.values() for run in runs.values())
    ]
    rows = [
        (name, *(_cell(runs, at) for at in rounds), *_costs(found, case, name))
        for name, runs in curves.items()
    ]
    steady = {
        name: {split: _steady(run) for split, run in runs.items()}
        for name, runs in curves.items()
    }
    late = [at for at in rounds if at >= 2 * STEADY]
    means = [
        (name, *(_cell(runs, at) for at in late)) for name, runs in steady.items()
    ] + _differences(steady, late)
    tuned = [
        f"- {name}: {describe(found['tuned'][f'{case}|{name}']['settings'])} "
        f"(validation {found['tuned'][f'{case}|{name}']['validation']:.3f})\n"
        for name in curves
        if f"{case}|{name}" in found["tuned"]
    ]
    parts = {
        "Winners of the tuning; what is not named is as in `BASE` of the study:": "".join(
            tuned
        ),
        "Paired differences, mean and 95 % interval (t) over splits:": _table(
            _differences(curves, rounds), rounds
        ),
        f"Mean of the last {STEADY} rounds until T, and differences:": _table(
            means, late
        ),
    }
    return [
        f"## {case} clients\n" if case.isdigit() else f"## {case}\n",
        _table(rows, rounds, "MB in 20 rounds", "processor s", "n"),
        *(f"{title}\n\n{text}" for title, text in parts.items() if text),
    ]


def _table(rows: Sequence[tuple[str, ...]], rounds: Sequence[int], *more: str) -> str:
    return (
        markdown(rows, ("", *(f"T = {at}" for at in rounds), *more))
        if rows and rounds
        else ""
    )


def curves_of(found: Mapping[str, Any], case: str, name: str) -> dict[str, list[float]]:
    """By split."""
    prefix = f"{case}|{name}|"
    return {
        key.removeprefix(prefix): cell["curve"]
        for key, cell in found["cells"].items()
        if key.startswith(prefix)
    }


def _steady(run: list[float]) -> list[float]:
    """At each round the mean of the last few until then."""
    return [
        float(np.mean(run[max(0, at - STEADY) : at])) for at in range(1, len(run) + 1)
    ]


def _at(run: list[float], at: int) -> float | None:
    """A computed head has one round, and stays."""
    return run[0] if len(run) == 1 else run[at - 1] if len(run) >= at else None


def _cell(runs: Mapping[str, list[float]], at: int) -> str:
    values = [
        value for value in (_at(run, at) for run in runs.values()) if value is not None
    ]
    if not values:
        return ""
    return f"{np.mean(values):.3f}" + (
        f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    )


def _costs(found: Mapping[str, Any], case: str, name: str) -> tuple[str, str, str]:
    cells = [
        cell
        for key, cell in found["cells"].items()
        if key.startswith(f"{case}|{name}|")
    ]
    sent = np.mean([sum(cell["megabytes"][:20]) for cell in cells])
    return (
        f"{sent:.2f}" if sent else "",
        f"{np.mean([cell['seconds'] for cell in cells]):.0f}",
        str(len(cells)),
    )


def _differences(
    curves: Mapping[str, Mapping[str, list[float]]], rounds: list[int]
) -> list[tuple[str, ...]]:
    """Of every FedAUX from every other method that trains; from those with the same
    start, if there are any.
    """
    ours = [name for name in curves if name.startswith("FedAUX")]
    rivals = [
        name
        for name in curves
        if name not in ours and any(len(run) > 1 for run in curves[name].values())
    ]
    same = {
        name: [one for one in rivals if one.endswith("start") == name.endswith("start")]
        for name in ours
    }
    found = [
        (
            f"{name} − {rival}",
            *(_paired(curves[name], curves[rival], at) for at in rounds),
        )
        for name in ours
        for rival in same[name] or rivals
    ]
    return [row for row in found if any(row[1:])]


def _paired(
    ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]], at: int
) -> str:
    pairs = [
        (_at(run, at), _at(theirs[split], at))
        for split, run in ours.items()
        if split in theirs
    ]
    values = np.array([a - b for a, b in pairs if a is not None and b is not None])
    return f"{values.mean():+.3f} ± {half_width(values):.3f}" if len(values) > 1 else ""


def half_width(values: NDArray[np.float64]) -> float:
    """Of the 95 % interval of their mean."""
    return float(
        t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    )


def main(design: Design, doc: str) -> None:
    """The command line of a study; `doc` is its docstring."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="+", choices=design.cases, default=[next(iter(design.cases))]
    )
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=design.budget)
    parser.add_argument(
        "--arms", nargs="+", choices=design.arms, default=list(design.arms)
    )
    parser.add_argument("--work", type=Path, default=Path("runs") / design.name)
    parser.add_argument("--table", action="store_true", help="only write the table")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(design, asked.work, asked.budget, design.found())
    for name in [] if asked.table else asked.arms:
        for case in asked.cases:
            for split in range(asked.splits):
                study.test(case, name, split, asked.rounds)
    print(design.write_table(study.found))

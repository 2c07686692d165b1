"""A study that gives every method the same number of settings on validation data and
tests the winners over splits.

One process. Each tuning and each run is written to the results when it ends; what is
there is not computed again. Runs lie below `--work`: a run that was stopped goes on
there, also for more rounds.

Tuning: successive halving over `--budget` settings of every arm, a fifth of the private
records held out, on a split that is not tested. An arm `like` another takes that arm's
winner and changes what it is about. A winner at the edge of its list has neighbours
`beyond` it, each of which runs for all rounds of the tuning. If one of these wins, the
arm's curves have a name of their own, so that what was run before stays as it is.
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
from fedaux.report.statistics import paired_p
from fedaux.report.tables import markdown
from fedaux.runs.runner import run
from fedaux.sweeps.grid import describe_settings
from fedaux.sweeps.tuning import Tuning, run_tuning
from studies.question import Question

RESULTS = Path(__file__).parent / "results"
SHOWN = (1, 5, 20, 100)  # rounds
STEADY = 5  # rounds whose mean is shown too, since accuracy swings
WIDER = ", wider list"  # of the curves of a winner beyond the list


@dataclass(frozen=True)
class Arm:
    """`own` are lists beside those of all methods."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    like: str = ""  # the arm whose winner it takes
    tuned_rounds: int = 0  # as the design says, or so many
    fixed: bool = False  # its settings stand: nothing is tuned
    # settings beyond the edges of the lists, each in place of the winner's
    beyond: tuple[Mapping[str, Any], ...] = ()


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
    # what the study is for, if that is one number
    question: Question | None = None

    @property
    def first_arms(self) -> list[str]:
        """The arms that answer the question, or all if there is none."""
        return list(self.question.arms if self.question else self.arms)

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def read_results(self) -> dict[str, Any]:
        """Return what has been computed: winners by arm, curves by arm and split."""
        if not self.results.is_file():
            return {"tuned": {}, "cells": {}}
        results: dict[str, Any] = json.loads(self.results.read_text(encoding="utf-8"))
        return results

    def write_table(self, results: Mapping[str, Any]) -> str:
        """Write the tables of all cases that have results beside them."""
        begun = {key.split("|")[0] for key in results["cells"]}
        names = [name + suffix for name in self.arms for suffix in ("", WIDER)]
        parts: list[str] = []
        if self.question is not None:
            parts += ["## The one number\n", self.answer(results)]
        for case in self.cases:
            if case in begun:
                parts += _of_case(results, names, case, self.shown)
        page = "\n".join(parts)
        self.results.with_suffix(".md").write_text(page, encoding="utf-8")
        return page

    def answer(self, results: Mapping[str, Any]) -> str:
        """Return the one number of the study, with each arm's curves of its winner."""
        assert self.question is not None
        case = self.question.case
        curves = {}
        for name in self.question.arms:
            shown = self.name_of_curves(results, case, name)
            curves[name] = curves_of(results, case, shown)
        return self.question.answer(curves)

    def name_of_curves(self, results: Mapping[str, Any], case: str, name: str) -> str:
        """Return the arm's name, or another one if its winner is beyond the list."""
        first, *further = self.trials(case, self.arms[name].like or name)
        best = best_trial(results, [first, *further])
        return name + WIDER if best in further else name

    def trials(self, case: str, name: str) -> list[str]:
        """Return the keys of an arm's tuning: of the lists, then of what is beyond."""
        key = f"{self.tuned_on.get(case, case)}|{name}"
        beyond = self.arms[name].beyond
        return [key, *(f"{key}|{describe_settings(change)}" for change in beyond)]


def best_trial(results: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the key with the best validation accuracy, among equals the first."""
    tuned = [key for key in keys if key in results["tuned"]]
    return max(tuned, key=lambda key: results["tuned"][key]["validation"], default=None)


@dataclass(frozen=True)
class Study:
    design: Design
    work: Path
    budget: int
    results: dict[str, Any]

    def config(
        self,
        case: str,
        rounds: int,
        settings: Mapping[str, Any],
        method: str,
        seed: int = 0,
    ) -> Config:
        overrides = [
            *self.design.base,
            *self.design.cases[case],
            f"rounds={rounds}",
            f"seed={seed}",
            f"method={method}",
        ]
        for key, value in settings.items():
            overrides.append(f"{key}={json.dumps(value)}")
        return Config.load(self.design.config, overrides)

    def rounds(self, arm: Arm, rounds: int) -> int:
        """A head that is computed from everybody's sums has them before the first
        round.
        """
        return 1 if find_method(arm.method).analytic else rounds

    def winner(self, case: str, name: str) -> Mapping[str, Any]:
        """The settings of an arm, tuned where that has not been done."""
        case = self.design.tuned_on.get(case, case)
        arm = self.design.arms[name]
        if arm.fixed:
            return arm.settings
        if arm.like:
            return self._like(arm, self.winner(case, arm.like))
        first, *further = self.design.trials(case, name)
        if first not in self.results["tuned"]:
            self._tune(case, name)
        for key, change in zip(further, arm.beyond, strict=True):
            if key not in self.results["tuned"]:
                self._try_beyond(case, name, key, change)
        best = best_trial(self.results, [first, *further])
        assert best is not None
        return dict(self.results["tuned"][best]["settings"])

    def _like(self, arm: Arm, winner: Mapping[str, Any]) -> Mapping[str, Any]:
        """The other arm's winner with this arm's settings; without any, with standing
        teachers switched.
        """
        if arm.settings:
            return {**winner, **arm.settings}
        standing = winner.get("teachers.standing", False)
        return {**winner, "teachers.standing": not standing}

    def _tune(self, case: str, name: str) -> None:
        arm = self.design.arms[name]
        rounds = self.rounds(arm, arm.tuned_rounds or self.design.tuned_rounds)
        base = self.config(case, rounds, arm.settings, arm.method)
        grid = {"": self.design.lists}
        lists = dict(arm.own)
        if "head_init" in arm.settings:
            lists["head_init"] = (arm.settings["head_init"],)
        if lists:
            grid[arm.method] = lists
        key = f"{case}|{name}"
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
            key,
            f"{best.scores[rounds]:.3f}",
            describe_settings(best.settings),
            flush=True,
        )

    def _try_beyond(
        self, case: str, name: str, key: str, change: Mapping[str, Any]
    ) -> None:
        """One setting beyond the edges of the lists, for all rounds of the tuning."""
        arm = self.design.arms[name]
        rounds = arm.tuned_rounds or self.design.tuned_rounds
        first = self.results["tuned"][self.design.trials(case, name)[0]]["settings"]
        settings = {**first, **change}
        base = self.config(case, rounds, settings, arm.method)
        started = time.process_time()
        # a budget of one is the config's own setting
        plan = Tuning.of(base, [arm.method], 1, grid={"": self.design.lists})
        tuning = run_tuning(plan, self.work / "tune" / _file_name(key))
        validation = tuning.winner(arm.method).scores[rounds]
        self.save(
            "tuned",
            key,
            settings=settings,
            validation=validation,
            tried=1,
            seconds=time.process_time() - started,
        )
        print(key, f"{validation:.3f}", flush=True)

    def test(self, case: str, name: str, split: int, rounds: int) -> None:
        """One cell: the curve, bytes until each round and processor time of a run on
        the test records.
        """
        arm = self.design.arms[name]
        rounds = self.rounds(arm, rounds)
        settings = self._tuned_for(case, name, split, rounds)
        if settings is None:
            return
        shown = self.design.name_of_curves(self.results, case, name)
        key = f"{case}|{shown}|{split}"
        before = self.results["cells"].get(key, {"curve": [], "seconds": 0.0})
        if len(before["curve"]) >= rounds:
            return
        config = self.config(case, rounds, settings, arm.method, split)
        started = time.process_time()
        result = run(config, self.work / "test" / _file_name(key))
        megabytes = [
            (round_result.bytes_sent + round_result.bytes_received) / 1e6
            for round_result in result.state.history
        ]
        self.save(
            "cells",
            key,
            curve=result.curve,
            megabytes=megabytes,
            seconds=before["seconds"] + time.process_time() - started,
        )
        shown = [at for at in self.design.shown if at <= rounds]
        accuracies = [f"{result.curve[at - 1]:.3f}" for at in shown]
        print(key, " ".join(accuracies), flush=True)

    def _tuned_for(
        self, case: str, name: str, split: int, rounds: int
    ) -> Mapping[str, Any] | None:
        """The winner's settings, or None for a cell that is there and that no setting
        beyond the list can change: then nothing is tuned.
        """
        arm = self.design.arms[name]
        cell = self.results["cells"].get(f"{case}|{name}|{split}", {"curve": []})
        beyond = arm.beyond or (arm.like and self.design.arms[arm.like].beyond)
        if len(cell["curve"]) >= rounds and not beyond:
            return None
        return self.winner(case, name)

    def save(self, kind: str, key: str, **values: Any) -> None:
        # another process may have written
        self.results.update(self.design.read_results())
        self.results[kind][key] = values
        as_json = json.dumps(self.results, indent=0, ensure_ascii=False)
        write_atomically(self.design.results, as_json.encode())


def _file_name(key: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in key)


def _of_case(
    results: Mapping[str, Any], arms: Sequence[str], case: str, shown: Sequence[int]
) -> list[str]:
    """The tables of a case, as parts of a page."""
    curves = {}
    for name in arms:
        runs = curves_of(results, case, name)
        if runs:
            curves[name] = runs
    longest = max(len(run) for runs in curves.values() for run in runs.values())
    rounds = [at for at in shown if at <= longest]
    rows = []
    for name, runs in curves.items():
        cells = [_cell(runs, at) for at in rounds]
        rows.append((name, *cells, *_costs(results, case, name)))
    title = f"## {case} clients\n" if case.isdigit() else f"## {case}\n"
    page = [title, _table(rows, rounds, "MB in 20 rounds", "processor s", "n")]
    winners = _winners(results, case, list(curves))
    if winners:
        heading = (
            "Winners of the tuning; what is not named is as in `BASE` of the study:"
        )
        page.append(f"{heading}\n\n{winners}")
    paired = _table(_differences(curves, rounds), rounds)
    if paired:
        heading = "Paired differences, mean and 95 % interval (t) over splits:"
        page.append(f"{heading}\n\n{paired}")
    means = _steady_table(curves, rounds)
    if means:
        heading = f"Mean of the last {STEADY} rounds until T, and differences:"
        page.append(f"{heading}\n\n{means}")
    whole = _whole_run_table(curves, rounds)
    if whole:
        heading = (
            "Mean of rounds 1 to T, and paired differences: 95 % interval and p "
            "(t, two-sided, not corrected):"
        )
        page.append(f"{heading}\n\n{whole}")
    return page


def _winners(results: Mapping[str, Any], case: str, arms: Sequence[str]) -> str:
    lines = ""
    for name in arms:
        key = f"{case}|{name}"
        if key in results["tuned"]:
            lines += f"- {name}: {_describe(results['tuned'][key])}\n"
        for other, trial in results["tuned"].items():
            if other.startswith(f"{key}|"):
                lines += f"- {name}, beyond the list: {_describe(trial)}\n"
    return lines


def _describe(trial: Mapping[str, Any]) -> str:
    """Settings, and the accuracy on validation records that they reached."""
    settings = describe_settings(trial["settings"])
    return f"{settings} (validation {trial['validation']:.3f})"


def _steady_table(
    curves: Mapping[str, Mapping[str, list[float]]], rounds: Sequence[int]
) -> str:
    """Means of a few rounds, since accuracy swings, and their differences."""
    steady = {}
    for name, runs in curves.items():
        steady[name] = {split: _steady(run) for split, run in runs.items()}
    late = [at for at in rounds if at >= 2 * STEADY]
    rows = []
    for name, runs in steady.items():
        rows.append((name, *(_cell(runs, at) for at in late)))
    rows += _differences(steady, late)
    return _table(rows, late)


def _whole_run_table(
    curves: Mapping[str, Mapping[str, list[float]]], rounds: Sequence[int]
) -> str:
    """Means of all rounds until T of what trains, since a single window may flatter."""
    means: dict[str, dict[str, list[float]]] = {}
    for name, runs in curves.items():
        if any(len(run) > 1 for run in runs.values()):
            means[name] = {split: _means_until(run) for split, run in runs.items()}
    late = [at for at in rounds if at >= 2 * STEADY]
    rows = []
    for name, runs in means.items():
        rows.append((name, *(_cell(runs, at) for at in late)))
    rows += _differences(means, late, with_p=True)
    return _table(rows, late)


def _means_until(run: list[float]) -> list[float]:
    """At each round the mean of all rounds until then."""
    sums = np.cumsum(run)
    return [float(total / (at + 1)) for at, total in enumerate(sums)]


def _table(rows: Sequence[tuple[str, ...]], rounds: Sequence[int], *more: str) -> str:
    if not rows or not rounds:
        return ""
    columns = [f"T = {at}" for at in rounds]
    return markdown(rows, ("", *columns, *more))


def curves_of(
    results: Mapping[str, Any], case: str, name: str
) -> dict[str, list[float]]:
    """By split."""
    prefix = f"{case}|{name}|"
    return {
        key.removeprefix(prefix): cell["curve"]
        for key, cell in results["cells"].items()
        if key.startswith(prefix)
    }


def _steady(run: list[float]) -> list[float]:
    """At each round the mean of the last few until then."""
    means = []
    for at in range(1, len(run) + 1):
        last = run[max(0, at - STEADY) : at]
        means.append(float(np.mean(last)))
    return means


def _at(run: list[float], at: int) -> float | None:
    """A computed head has one round, and stays."""
    if len(run) == 1:
        return run[0]
    if len(run) < at:
        return None
    return run[at - 1]


def _cell(runs: Mapping[str, list[float]], at: int) -> str:
    reached = [_at(run, at) for run in runs.values()]
    values = [value for value in reached if value is not None]
    if not values:
        return ""
    mean = f"{np.mean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {np.std(values, ddof=1):.3f}"


def _costs(results: Mapping[str, Any], case: str, name: str) -> tuple[str, str, str]:
    cells = [
        cell
        for key, cell in results["cells"].items()
        if key.startswith(f"{case}|{name}|")
    ]
    sent = np.mean([sum(cell["megabytes"][:20]) for cell in cells])
    seconds = np.mean([cell["seconds"] for cell in cells])
    return f"{sent:.2f}" if sent else "", f"{seconds:.0f}", str(len(cells))


def _differences(
    curves: Mapping[str, Mapping[str, list[float]]],
    rounds: Sequence[int],
    *,
    with_p: bool = False,
) -> list[tuple[str, ...]]:
    """Of every FedAUX from every other method that trains; from those with the same
    start, if there are any.
    """
    ours = [name for name in curves if name.startswith("FedAUX")]
    rivals = []
    for name, runs in curves.items():
        trains = any(len(run) > 1 for run in runs.values())
        if name not in ours and trains:
            rivals.append(name)
    rows = []
    for name in ours:
        alike = [rival for rival in rivals if _start_of(rival) == _start_of(name)]
        at_random = [rival for rival in rivals if not _start_of(rival)]
        for rival in alike or at_random:
            cells = []
            for at in rounds:
                values = _paired(curves[name], curves[rival], at)
                cells.append(_difference(values, with_p=with_p))
            if any(cells):
                rows.append((f"{name} − {rival}", *cells))
    return rows


def _start_of(name: str) -> str:
    """What an arm starts from, by its name. Empty: random heads."""
    parts = name.split(", ")
    return ", ".join(
        part for part in parts if part == "class moments" or part.endswith("start")
    )


def _paired(
    ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]], at: int
) -> NDArray[np.float64]:
    """Return the differences in a round on the splits that both have."""
    differences = []
    for split, curve in ours.items():
        if split not in theirs:
            continue
        mine = _at(curve, at)
        other = _at(theirs[split], at)
        if mine is not None and other is not None:
            differences.append(mine - other)
    return np.array(differences)


def _difference(values: NDArray[np.float64], *, with_p: bool) -> str:
    if len(values) < 2:
        return ""
    text = f"{values.mean():+.3f} ± {half_width(values):.3f}"
    if with_p:
        text += f", p = {paired_p(values):.3f}"
    return text


def half_width(values: NDArray[np.float64]) -> float:
    """Of the 95 % interval of their mean."""
    quantile = t.ppf(0.975, len(values) - 1)
    return float(quantile * values.std(ddof=1) / np.sqrt(len(values)))


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
        "--arms", nargs="+", choices=design.arms, default=design.first_arms
    )
    parser.add_argument("--work", type=Path, default=Path("runs") / design.name)
    parser.add_argument("--table", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = design.read_results()
    study = Study(design, arguments.work, arguments.budget, results)
    for name in [] if arguments.table else arguments.arms:
        for case in arguments.cases:
            for split in range(arguments.splits):
                study.test(case, name, split, arguments.rounds)
    print(design.write_table(study.results))
    if design.question is not None:
        print(design.answer(study.results))

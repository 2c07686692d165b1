"""Tuning: the same number of settings and rounds for every method, judged by validation
records, never by test records.

Successive halving: many settings run for few rounds, the better half of them continues
for more, and the last ones have all rounds. A setting that continues continues its own
run. What has been run is read again: a tuning that was stopped continues with the same
call.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedaux.config.methods import PAPER_METHODS, find_method
from fedaux.config.parsing import Within, apply_override, require
from fedaux.config.schema import Config, read_table
from fedaux.core.errors import Exit
from fedaux.core.io import write_atomically
from fedaux.core.progress import (
    OnProgress,
    SweepProgress,
    no_progress,
    report,
    report_to,
)
from fedaux.report.tables import markdown, to_csv
from fedaux.report.terminal import plural
from fedaux.sweeps.engine import execute, finished
from fedaux.sweeps.grid import (
    METADATA,
    Arm,
    DottedSettings,
    PlannedRun,
    describe_settings,
    seeded_runs,
)
from fedaux.sweeps.method_settings import WINNERS
from fedaux.sweeps.results import FailedRun, raise_failures
from fedaux.sweeps.tuning_grid import (
    Axis,
    Lists,
    Value,
    at_edge,
    axes,
    read_grid,
    replaced,
    sample_arms,
)

# above the config's own: a comparison never uses a split that was used for tuning
FIRST_SEED = 1000
KEEP = 2  # one setting in this many survives a rung
# how a run ends whose setting makes training diverge
DIVERGED = (Exit.DIVERGED, Exit.CLIENTS)
TUNING_UNIT = "rounds of tuning"
TUNING_COLUMNS = (
    "method",
    "validation accuracy",
    "as in the config",
    "settings",
    "rounds",
    "chosen",
)


class Rung(NamedTuple):
    """One stage of tuning: how many settings of each method run, and until which
    round.
    """

    settings: int
    rounds: int


def rungs(budget: int, rounds: int) -> tuple[Rung, ...]:
    """Successive halving: each rung has half as many settings for twice as many rounds.
    The last 2 settings run all.
    """
    counts = [budget]
    while counts[-1] > KEEP:
        counts.append(math.ceil(counts[-1] / KEEP))
    # A short run has fewer different stops than there are counts: the last counts,
    # of the fewest settings, are then left out.
    stops = sorted({math.ceil(rounds / KEEP**rung) for rung in range(len(counts))})
    return tuple(Rung(count, stop) for count, stop in zip(counts, stops, strict=False))


@dataclass
class Trial:
    """One setting of a method: its validation accuracy after the rounds of each rung
    that it took part in.
    """

    arm: Arm
    number: int  # 0 is the config's own setting, where the method allows it
    # by round, the mean over seeds
    scores: dict[int, float] = field(default_factory=dict)

    @property
    def settings(self) -> DottedSettings:
        return {
            key: value for key, value in self.arm.settings.items() if key != "method"
        }

    @property
    def rounds(self) -> int:
        return max(self.scores, default=0)

    def to_dict(self) -> dict[str, Any]:
        scores = {str(round_): score for round_, score in self.scores.items()}
        return {
            "number": self.number,
            "name": self.arm.name,
            "settings": self.settings,
            "accuracy": scores,
        }


def best(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return the trials that got furthest, among these the most accurate; ties go to
    the earlier trial.
    """

    def rank(trial: Trial) -> tuple[int, float]:
        return -trial.rounds, -trial.scores.get(trial.rounds, 0.0)

    return sorted(trials, key=rank)[:count]


@dataclass(frozen=True, eq=False)
class Tuning:
    """The settings to try, and the data to try them on. `base` is the config to
    compare, not the one that is tuned.
    """

    base: Config
    budget: int
    seeds: int
    validation_fraction: float
    grids: dict[str, tuple[Axis, ...]]  # by method
    trials: dict[str, list[Trial]]

    @classmethod
    def of(
        cls,
        base: Config,
        methods: Sequence[str] = PAPER_METHODS,
        budget: int = 8,
        seeds: int = 1,
        validation_fraction: float = 0.2,
        grid: Mapping[str, Lists] | None = None,
    ) -> Tuning:
        """Plan the tuning of these methods. `grid` holds the user's own lists, read
        from `[tune]` by `read_grid`.
        """
        settings = Within("[1, inf)", "how many settings of each method are tried")
        settings.check("tune: the budget", budget)
        Within("[1, inf)").check("tune: seeds", seeds)
        Within("(0, 1)").check("tune: validation_fraction", validation_fraction)
        require(
            base.data.validation_fraction == 0,
            "Cannot tune with data.validation_fraction: tune sets it for its runs. "
            "Leave it out.",
        )
        require(
            len(set(methods)) == len(methods),
            "Cannot tune: a method is named twice. Name every one once, because all "
            "have the same budget.",
        )
        data = replace(
            base.data,
            validation_fraction=validation_fraction,
            test_seed=_test_seed(base),
        )
        tuned = replace(base, data=data, seed=base.seed + FIRST_SEED)
        grids = {}
        trials = {}
        for name in methods:
            grids[name] = axes(base, name, grid)
            arms = sample_arms(tuned, name, grids[name], budget, base.seed)
            trials[name] = _trials(arms)
        return cls(base, budget, seeds, validation_fraction, grids, trials)

    @classmethod
    def load(
        cls, path: str | Path, overrides: Sequence[str] = (), **chosen: Any
    ) -> Tuning:
        """Read a config and its table `[tune]`, if any. `tune.key=[…]` overrides a
        list, `chosen` its other entries.
        """
        table = read_table(path)
        table.pop("sweep", None)
        written = table.pop("tune", {})
        overridden: dict[str, Any] = {"tune": {}}
        of_base = []
        for override in overrides:
            if override.strip().startswith("tune."):
                apply_override(overridden, override)
            else:
                of_base.append(override)
        plan: dict[str, Any] = {}
        grid: dict[str, dict[str, tuple[Value, ...]]] = {}
        for tune_table in (written, overridden["tune"]):
            lists = dict(tune_table)
            for key in METADATA["tune"]:
                if key in lists:
                    plan[key] = lists.pop(key)
            for method, values in read_grid(lists).items():
                grid[method] = replaced(grid.get(method, {}), values)
        base = Config.from_dict(table, of_base)
        return cls.of(base, **{**plan, **chosen}, grid=grid)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return rungs(self.budget, self.base.rounds)

    def runs(self, trial: Trial, until: int, folder: Path) -> list[PlannedRun]:
        return seeded_runs(
            trial.arm, self.base.seed + FIRST_SEED, self.seeds, folder, until
        )

    def total_rounds(self, method: str) -> int:
        """Return the number of rounds that all trials and seeds of a method take until
        the last rung.
        """
        trials = len(self.trials[method])
        before = 0
        total = 0
        for rung in self.rungs:
            total += min(rung.settings, trials) * (rung.rounds - before)
            before = rung.rounds
        return total * self.seeds

    def winner(self, method: str) -> Trial:
        return best(self.trials[method], 1)[0]

    @property
    def caption(self) -> str:
        """What was tuned, and how: the text above the table of `rows`."""
        base = self.base
        stages = [f"{rung.settings} until round {rung.rounds}" for rung in self.rungs]
        prototypes = ", ".join(spec.label for spec in base.prototypes)
        return (
            f"Validation accuracy in %: {base.data.source}, {base.data.clients} "
            f"clients, {prototypes}, {plural(base.rounds, 'round')}. {self.budget} "
            f"settings per method at most ({', '.join(stages)}), "
            f"{plural(self.seeds, 'split')}, {100 * self.validation_fraction:g} % of "
            "the private records held out for validation. The winner's value is "
            "optimistic, because the winner was chosen by it."
        )

    def rows(self) -> list[tuple[str, ...]]:
        """One row per method, as `TUNING_COLUMNS` says: its winner, how far the
        config's own setting got, the cost.
        """
        return [self._row(name, trials) for name, trials in self.trials.items()]

    def _row(self, name: str, trials: Sequence[Trial]) -> tuple[str, ...]:
        winner = self.winner(name)
        as_configured = "–"
        for trial in trials:
            if trial.number == 0:
                as_configured = self._score(trial)
        settings = describe_settings(winner.settings)
        for key in at_edge(self.grids[name], winner.settings):
            settings += f", {key} is at the edge of its list: widen it"
        return (
            find_method(name).label,
            self._score(winner),
            as_configured,
            str(len(trials)),
            str(self.total_rounds(name)),
            settings,
        )

    def _score(self, trial: Trial) -> str:
        """Per cent, with the round where that was not the last."""
        percent = f"{100 * trial.scores[trial.rounds]:.1f}"
        if trial.rounds == self.base.rounds:
            return percent
        return f"{percent} (round {trial.rounds})"

    def winners(self) -> dict[str, Any]:
        """Return what a comparison needs: each method's settings, and how they were
        found.
        """
        first = self.base.seed + FIRST_SEED
        return {
            "budget": self.budget,
            "seeds": list(range(first, first + self.seeds)),
            "rungs": [list(rung) for rung in self.rungs],
            "validation_fraction": self.validation_fraction,
            "test_seed": _test_seed(self.base),
            "config": self.base.to_dict(),
            "methods": {name: self._winner_to_dict(name) for name in self.trials},
        }

    def _winner_to_dict(self, name: str) -> dict[str, Any]:
        winner = self.winner(name)
        return {
            "settings": winner.settings,
            "at_edge": at_edge(self.grids[name], winner.settings),
            "accuracy": winner.scores[self.base.rounds],
            "tried": len(self.trials[name]),
            "rounds": self.total_rounds(name),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return winners, grids and all trials, for JSON."""
        grids = {}
        for name, grid in self.grids.items():
            grids[name] = {axis.key: list(axis.allowed) for axis in grid}
        trials = {}
        for name, tried in self.trials.items():
            trials[name] = [trial.to_dict() for trial in tried]
        return {**self.winners(), "grids": grids, "trials": trials}


def tune(
    base: Config,
    folder: Path,
    methods: Sequence[str] = PAPER_METHODS,
    budget: int = 8,
    *,
    seeds: int = 1,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
) -> Tuning:
    """Find good settings for each method with the same number of runs and rounds, and
    write them into `folder`.

    Args:
        base: The settings to tune. Its `method` is ignored, and its test records are
            never used.
        folder: The folder for the runs and the winners, which `MethodSettings.read`
            reads for a comparison.
        methods: Names in `METHODS`, or `module:attribute`. By default the nine of the
            paper.
        budget: The number of settings to try for each method.
        seeds: The number of splits. None is among the first thousand from the config's
            own seed on.
        jobs: The number of parallel runs, as in `compare`.
        threads: The number of PyTorch threads of each run.
        on_progress: Called with events of `fedaux.core.progress`.
        cache: The folder for extractors and features, as in `run`.

    Returns:
        The trials with their validation accuracies, and the winner of each method.
    """
    plan = Tuning.of(base, methods, budget, seeds)
    with report_to(on_progress):
        tuned = run_tuning(plan, folder, jobs=jobs, threads=threads, cache=cache)
    return write_tuning(tuned, folder)


def run_tuning(
    tuning: Tuning,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    cache: Path | None = None,
) -> Tuning:
    """Run all rungs, with the runs of all methods in a rung together, and return the
    trials with their scores. Progress is reported to whoever listens (`report_to`).

    A setting that makes training diverge has accuracy 0. Any other failure ends the
    tuning after its rung, since a method whose runs fail for other reasons would be
    tuned with less than the others. A new call continues.
    """
    trials = {}
    for name, planned in tuning.trials.items():
        trials[name] = [replace(trial, scores={}) for trial in planned]
    tuning = replace(tuning, trials=trials)
    total = sum(tuning.total_rounds(name) for name in trials)
    alive = trials
    done = 0
    before = 0
    for rung in tuning.rungs:
        alive = {name: best(tried, rung.settings) for name, tried in alive.items()}
        runs_of_trials: list[tuple[Trial, list[PlannedRun]]] = []
        for trial in itertools.chain.from_iterable(alive.values()):
            runs = tuning.runs(trial, rung.rounds, folder)
            runs_of_trials.append((trial, runs))
        all_runs = [run for _, runs in runs_of_trials for run in runs]
        accuracy = _accuracies(all_runs, rung.rounds)
        cost = rung.rounds - before
        done += len(accuracy) * cost
        report(SweepProgress(done, total, unit=TUNING_UNIT))
        missing = [run for run in all_runs if run.folder not in accuracy]
        failures: list[FailedRun] = []
        for run, error in execute(missing, jobs, threads, cache):
            done += cost
            shown = None
            if error is None:
                accuracy |= _accuracies([run], rung.rounds)
                shown = accuracy[run.folder]
            elif error.code in DIVERGED:
                accuracy[run.folder] = 0.0
            else:
                failures.append(FailedRun(run, error))
            report(SweepProgress(done, total, run.label, shown, TUNING_UNIT))
        raise_failures(failures, len(all_runs), folder)
        for trial, runs in runs_of_trials:
            over_seeds = [accuracy[run.folder] for run in runs]
            trial.scores[rung.rounds] = sum(over_seeds) / len(over_seeds)
        before = rung.rounds
    return tuning


def _accuracies(runs: Sequence[PlannedRun], round_: int) -> dict[Path, float]:
    """Return the accuracy after a round of the runs that got so far, by folder."""
    accuracies = {}
    for run in runs:
        result = finished(run)
        if result is not None:
            accuracies[run.folder] = result.curve[round_ - 1]
    return accuracies


def write_tuning(tuning: Tuning, folder: Path) -> Tuning:
    """Write tuned.json (for `--tuned`), tune.json with grids and trials, trials.csv and
    table.md.
    """
    stops = [rung.rounds for rung in tuning.rungs]
    columns = [f"round_{stop}" for stop in stops]
    header: list[Any] = ["method", "setting", *columns, "settings", "folder"]
    lines = [header]
    for name, trials in tuning.trials.items():
        for trial in trials:
            scores = [trial.scores.get(stop) for stop in stops]
            settings = describe_settings(trial.settings)
            lines.append([name, trial.number, *scores, settings, trial.arm.name])
    files = {
        WINNERS: json.dumps(tuning.winners(), indent=1, ensure_ascii=False),
        "tune.json": json.dumps(tuning.to_dict(), indent=1, ensure_ascii=False),
        "trials.csv": to_csv(lines),
        "table.md": f"{tuning.caption}\n\n{markdown(tuning.rows(), TUNING_COLUMNS)}",
    }
    for name, content in files.items():
        write_atomically(folder / name, content.encode())
    return tuning


def _test_seed(base: Config) -> int:
    """Return the seed that selects the test records, on which neither tuning nor the
    comparison trains.
    """
    if base.data.test_seed >= 0:
        return base.data.test_seed
    return base.seed


def _trials(arms: Sequence[Arm]) -> list[Trial]:
    """Number the arms as trials, with short folder names that do not depend on the
    budget.
    """
    # The config's own setting, if the method allows it, is the first and has number 0.
    starts_with_config = any(arm.settings.keys() == {"method"} for arm in arms)
    first = 0 if starts_with_config else 1
    return [
        Trial(_named(arm, number), number) for number, arm in enumerate(arms, first)
    ]


def _named(arm: Arm, number: int) -> Arm:
    method = arm.config.method
    words = f"setting {number}" if number else "as in the config"
    label = f"{find_method(method).label} {words}"
    name = re.sub(r"[^\w.+]+", "_", method, flags=re.ASCII)
    folder = f"{name}-{arm.config.hash[:8]}"
    return replace(arm, name=folder, labels={"method": label})

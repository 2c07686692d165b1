"""Tuning: the same number of settings and rounds for every method, judged by validation
records, never by test records.

Successive halving: many settings run for few rounds, the better half of them goes on
for more, and the last ones have all rounds. A setting that goes on continues its own
run. What has been run is read again: a tuning that was stopped goes on with the same
call.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedaux.config.methods import PAPER, find_method
from fedaux.config.parsing import Within, apply_override, require
from fedaux.config.schema import Config, read_table
from fedaux.core.errors import Exit
from fedaux.core.io import write_atomically
from fedaux.core.progress import OnProgress, SweepProgress, no_progress
from fedaux.report.tables import markdown, to_csv
from fedaux.report.terminal import plural
from fedaux.sweeps.engine import FailedRun, execute, finished, raise_failures
from fedaux.sweeps.grid import (
    METADATA,
    WINNERS,
    Arm,
    Run,
    Settings,
    describe,
    seeded_runs,
)
from fedaux.sweeps.tuning_grid import (
    Axis,
    Lists,
    Value,
    at_edge,
    axes,
    read_grid,
    replaced,
    sample,
)

# above the config's own: a comparison never uses a split that was used for tuning
FIRST_SEED = 1000
KEEP = 2  # one setting in this many survives a rung
# how a run ends whose setting makes training diverge
LOST = (Exit.DIVERGED, Exit.CLIENTS)
UNIT = "rounds of tuning"
HEADER = (
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
    """Successive halving: each rung has half as many settings for twice as many rounds;
    the last 2 settings run all.
    """
    counts = [budget]
    while counts[-1] > KEEP:
        counts.append(math.ceil(counts[-1] / KEEP))
    stops = sorted({math.ceil(rounds / KEEP**i) for i in range(len(counts))})
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
    def settings(self) -> Settings:
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
    return sorted(
        trials, key=lambda trial: (-trial.rounds, -trial.scores.get(trial.rounds, 0.0))
    )[:count]


@dataclass(frozen=True, eq=False)
class Tuning:
    """The settings to try, and the data to try them on; `base` is the config to
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
        methods: Sequence[str] = PAPER,
        budget: int = 8,
        seeds: int = 1,
        validation_fraction: float = 0.2,
        grid: Mapping[str, Lists] | None = None,
    ) -> Tuning:
        """Plan the tuning of these methods; `grid` holds the user's own lists, read
        from `[tune]` by `read_grid`.
        """
        Within("[1, inf)", "how many settings of each method are tried").check(
            "tune: the budget", budget
        )
        Within("[1, inf)").check("tune: seeds", seeds)
        Within("(0, 1)").check("tune: validation_fraction", validation_fraction)
        require(
            base.data.validation_fraction == 0,
            "leave data.validation_fraction out: tune sets it for its own runs.",
        )
        require(
            len(set(methods)) == len(methods),
            "tune: a method is named twice; every one has the same budget.",
        )
        data = replace(
            base.data,
            validation_fraction=validation_fraction,
            test_seed=_test_seed(base),
        )
        tuned = replace(base, data=data, seed=base.seed + FIRST_SEED)
        grids = {name: axes(base, name, grid) for name in methods}
        trials = {
            name: _trials(sample(tuned, name, found, budget, base.seed))
            for name, found in grids.items()
        }
        return cls(base, budget, seeds, validation_fraction, grids, trials)

    @classmethod
    def load(
        cls, path: str | Path, overrides: Sequence[str] = (), **chosen: Any
    ) -> Tuning:
        """Read a config and its table `[tune]`, if any. `tune.key=[…]` overrides a
        list, `chosen` its other entries.
        """
        table, mine = (
            read_table(path),
            [text for text in overrides if text.strip().startswith("tune.")],
        )
        given, changed = dict(table.pop("tune", {})), dict[str, Any](tune={})
        table.pop("sweep", None)
        for text in mine:
            apply_override(changed, text)
        said, grid = dict[str, Any](), dict[str, dict[str, tuple[Value, ...]]]()
        for tune in (given, changed["tune"]):
            said |= {
                key: value for key, value in tune.items() if key in METADATA["tune"]
            }
            for method, lists in read_grid(
                {key: tune[key] for key in tune if key not in METADATA["tune"]}
            ).items():
                grid[method] = replaced(grid.get(method, {}), lists)
        base = Config.from_dict(table, [text for text in overrides if text not in mine])
        return cls.of(base, **{**said, **chosen}, grid=grid)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return rungs(self.budget, self.base.rounds)

    def runs(self, trial: Trial, until: int, folder: Path) -> list[Run]:
        return seeded_runs(
            trial.arm, self.base.seed + FIRST_SEED, self.seeds, folder, until
        )

    def total_rounds(self, method: str) -> int:
        """Return the number of rounds that all trials and seeds of a method take until
        the last rung.
        """
        before, total = 0, 0
        for rung in self.rungs:
            total += min(rung.settings, len(self.trials[method])) * (
                rung.rounds - before
            )
            before = rung.rounds
        return total * self.seeds

    def winner(self, method: str) -> Trial:
        return best(self.trials[method], 1)[0]

    @property
    def caption(self) -> str:
        """What was tuned, and how: the text above the table of `rows`."""
        halving = ", ".join(
            f"{rung.settings} until round {rung.rounds}" for rung in self.rungs
        )
        return (
            f"Validation accuracy in %: {self.base.data.source}, "
            f"{self.base.data.clients} clients, "
            f"{', '.join(spec.label for spec in self.base.prototypes)}, "
            f"{plural(self.base.rounds, 'round')}. {self.budget} settings a method at "
            f"most ({halving}), {plural(self.seeds, 'split')}, "
            f"{100 * self.validation_fraction:g} % of the private records held out for "
            "validation. The winner's own figure is optimistic: it was chosen by it."
        )

    def rows(self) -> list[tuple[str, ...]]:
        """One row per method, as `HEADER` says: its winner, how far the config's own
        setting got, the cost.
        """
        found = list[tuple[str, ...]]()
        for name, trials in self.trials.items():
            winner = self.winner(name)
            own = [self._score(trial) for trial in trials if trial.number == 0] or ["–"]
            edges = at_edge(self.grids[name], winner.settings)
            said = describe(winner.settings) + "".join(
                f"; {key} is at the edge of its list: widen it" for key in edges
            )
            cost = str(len(trials)), str(self.total_rounds(name))
            found.append(
                (find_method(name).label, self._score(winner), *own, *cost, said)
            )
        return found

    def _score(self, trial: Trial) -> str:
        """Per cent; with the round where that was not the last."""
        text = f"{100 * trial.scores[trial.rounds]:.1f}"
        return (
            text
            if trial.rounds == self.base.rounds
            else f"{text} (round {trial.rounds})"
        )

    def winners(self) -> dict[str, Any]:
        """Return what a comparison needs: each method's settings, and how they were
        found.
        """
        return {
            "budget": self.budget,
            "seeds": [self.base.seed + FIRST_SEED + i for i in range(self.seeds)],
            "rungs": [list(rung) for rung in self.rungs],
            "validation_fraction": self.validation_fraction,
            "test_seed": _test_seed(self.base),
            "config": self.base.to_dict(),
            "methods": {
                name: {
                    "settings": self.winner(name).settings,
                    "at_edge": at_edge(self.grids[name], self.winner(name).settings),
                    "accuracy": self.winner(name).scores[self.base.rounds],
                    "tried": len(trials),
                    "rounds": self.total_rounds(name),
                }
                for name, trials in self.trials.items()
            },
        }

    def to_dict(self) -> dict[str, Any]:
        """Return winners, grids and all trials, for JSON."""
        grids = {
            name: {axis.key: list(axis.allowed) for axis in grid}
            for name, grid in self.grids.items()
        }
        trials = {
            name: [trial.to_dict() for trial in found]
            for name, found in self.trials.items()
        }
        return {**self.winners(), "grids": grids, "trials": trials}


def tune(
    base: Config,
    folder: Path,
    methods: Sequence[str] = PAPER,
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
        base: The settings to tune; its `method` is ignored, and its test records are
            never used.
        folder: The folder for the runs and the winners, which `MethodSettings.read`
            reads for a comparison.
        methods: Names in `METHODS`, or `module:attribute`; by default the nine of the
            paper.
        budget: The number of settings to try for each method.
        seeds: The number of splits; none is among the first thousand from the config's
            own seed on.
        jobs: The number of parallel runs, as in `compare`.
        threads: The number of PyTorch threads of each run.
        on_progress: Called with events of `fedaux.core.progress`.
        cache: The folder for extractors and features, as in `run`.

    Returns:
        The trials with their validation accuracies, and the winner of each method.
    """
    plan = Tuning.of(base, methods, budget, seeds)
    found = run_tuning(
        plan, folder, jobs=jobs, threads=threads, on_progress=on_progress, cache=cache
    )
    return write_tuning(found, folder)


def run_tuning(
    tuning: Tuning,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
) -> Tuning:
    """Run all rungs, with the runs of all methods in a rung together, and return the
    trials with their scores.

    A setting that makes training diverge has accuracy 0. Any other failure ends the
    tuning after its rung, since a method whose runs fail for other reasons would be
    tuned with less than the others. A new call continues.
    """
    trials = {
        name: [replace(trial, scores={}) for trial in found]
        for name, found in tuning.trials.items()
    }
    tuning, alive, before, done = replace(tuning, trials=trials), trials, 0, 0
    total = sum(map(tuning.total_rounds, trials))
    for rung in tuning.rungs:
        alive = {name: best(found, rung.settings) for name, found in alive.items()}
        entered = [
            (trial, tuning.runs(trial, rung.rounds, folder))
            for found in alive.values()
            for trial in found
        ]
        runs = [run for _, own in entered for run in own]
        accuracy = {
            run.folder: result.curve[rung.rounds - 1]
            for run in runs
            if (result := finished(run))
        }
        done += len(accuracy) * (rung.rounds - before)
        on_progress(SweepProgress(done, total, unit=UNIT))
        missing, failures = (
            [run for run in runs if run.folder not in accuracy],
            list[FailedRun](),
        )
        for run, error in execute(missing, jobs, threads, on_progress, cache=cache):
            done += rung.rounds - before
            if error is None:
                result = finished(run)
                assert result is not None
                accuracy[run.folder] = result.curve[rung.rounds - 1]
            elif error.code in LOST:
                accuracy[run.folder] = 0.0
            else:
                failures.append(FailedRun(run, error))
            on_progress(
                SweepProgress(
                    done,
                    total,
                    run.label,
                    None if error else accuracy[run.folder],
                    UNIT,
                )
            )
        raise_failures(failures, len(runs), folder)
        for trial, own in entered:
            trial.scores[rung.rounds] = sum(accuracy[run.folder] for run in own) / len(
                own
            )
        before = rung.rounds
    return tuning


def write_tuning(tuning: Tuning, folder: Path) -> Tuning:
    """Write tuned.json (for `--tuned`), tune.json with grids and trials, trials.csv and
    table.md.
    """
    stops = [rung.rounds for rung in tuning.rungs]
    lines: list[list[Any]] = [
        [
            "method",
            "setting",
            *(f"round_{stop}" for stop in stops),
            "settings",
            "folder",
        ]
    ]
    for name, trials in tuning.trials.items():
        for trial in trials:
            scores = [trial.scores.get(stop) for stop in stops]
            lines.append(
                [name, trial.number, *scores, describe(trial.settings), trial.arm.name]
            )
    files = {
        WINNERS: json.dumps(tuning.winners(), indent=1, ensure_ascii=False),
        "tune.json": json.dumps(tuning.to_dict(), indent=1, ensure_ascii=False),
        "trials.csv": to_csv(lines),
        "table.md": f"{tuning.caption}\n\n{markdown(tuning.rows(), HEADER)}",
    }
    for name, content in files.items():
        write_atomically(folder / name, content.encode())
    return tuning


def _test_seed(base: Config) -> int:
    """Return the seed that selects the test records, on which neither tuning nor the
    comparison trains.
    """
    return base.seed if base.data.test_seed < 0 else base.data.test_seed


def _trials(arms: Sequence[Arm]) -> list[Trial]:
    """Number the arms as trials, with short folder names that do not depend on the
    budget.
    """
    own = sum(arm.settings.keys() == {"method"} for arm in arms)  # the first, or none
    return [
        Trial(_named(arm, number), number) for number, arm in enumerate(arms, 1 - own)
    ]


def _named(arm: Arm, number: int) -> Arm:
    name = re.sub(r"[^\w.+]+", "_", arm.config.method, flags=re.ASCII)
    label = f"{find_method(arm.config.method).label} {f'setting {number}' if number else 'as in the config'}"
    return replace(arm, name=f"{name}-{arm.config.hash[:8]}", labels={"method": label})

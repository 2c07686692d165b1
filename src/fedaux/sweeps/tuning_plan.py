"""A tuning before it runs: which settings of which methods, on which data, and for how many rounds each.

Successive halving: many settings run for few rounds, the better half of them goes on for more, and the last ones have
all rounds. Every method has the same number of settings and of rounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedaux.config.methods import PAPER, find_method
from fedaux.config.parsing import Within, apply_override, require
from fedaux.config.schema import Config, read_table
from fedaux.sweeps.arms import Arm, Settings
from fedaux.sweeps.grid import METADATA, Run, seeded_runs
from fedaux.sweeps.tuning_grid import Axis, Lists, Value, axes, read_grid, replaced, sample

FIRST_SEED = 1000  # above the config's own: the splits of a comparison are none of those of its tuning
KEEP = 2  # one setting in so many goes on


@dataclass(frozen=True)
class Rung:
    """So many settings of a method run until this round."""

    settings: int
    rounds: int


def rungs(budget: int, rounds: int) -> tuple[Rung, ...]:
    """Half as many settings for twice as many rounds, again and again, to the last two with all rounds."""
    counts = [budget]
    while counts[-1] > KEEP:
        counts.append(math.ceil(counts[-1] / KEEP))
    stops = sorted({math.ceil(rounds / KEEP**i) for i in range(len(counts))})
    return tuple(Rung(count, stop) for count, stop in zip(counts, stops, strict=False))


@dataclass
class Trial:
    """One setting of a method: its validation accuracy after the rounds of each rung that it took part in."""

    arm: Arm
    number: int  # 0 is the config's own setting, where the method allows it
    scores: dict[int, float] = field(default_factory=dict)  # by round, the mean over seeds

    @property
    def settings(self) -> Settings:
        return {key: value for key, value in self.arm.settings.items() if key != "method"}

    @property
    def rounds(self) -> int:
        return max(self.scores, default=0)

    def to_dict(self) -> dict[str, Any]:
        scores = {str(round_): score for round_, score in self.scores.items()}
        return {"number": self.number, "name": self.arm.name, "settings": self.settings, "accuracy": scores}


@dataclass(frozen=True, eq=False)
class Tuning:
    """What is tried, and with which data; `base` is the config as it will be compared, not as it is tuned."""

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
        """`grid` has lists of one's own, as `read_grid` reads them from a table `[tune]`."""
        Within("[1, inf)", "how many settings of each method are tried").check("tune: the budget", budget)
        Within("[1, inf)").check("tune: seeds", seeds)
        Within("(0, 1)").check("tune: validation_fraction", validation_fraction)
        require(
            base.data.validation_fraction == 0, "leave data.validation_fraction out: tune sets it for its own runs."
        )
        require(len(set(methods)) == len(methods), "tune: a method is named twice; every one has the same budget.")
        data = replace(base.data, validation_fraction=validation_fraction, test_seed=held_out_seed(base))
        tuned = replace(base, data=data, seed=base.seed + FIRST_SEED)
        grids = {name: axes(base, name, grid) for name in methods}
        arms = {name: sample(tuned, name, found, budget, base.seed) for name, found in grids.items()}
        trials = {name: _trials(found) for name, found in arms.items()}
        return cls(base, budget, seeds, validation_fraction, grids, trials)

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = (), **chosen: Any) -> Tuning:
        """A config and its table `[tune]`, if it has one. `tune.key=[…]` overrides a list, `chosen` all."""
        table, mine = read_table(path), [text for text in overrides if text.strip().startswith("tune.")]
        given, changed = dict(table.pop("tune", {})), dict[str, Any](tune={})
        table.pop("sweep", None)
        for text in mine:
            apply_override(changed, text)
        said, grid = dict[str, Any](), dict[str, dict[str, tuple[Value, ...]]]()
        for tune in (given, changed["tune"]):
            said |= {key: value for key, value in tune.items() if key in METADATA["tune"]}
            for method, lists in read_grid({key: tune[key] for key in tune if key not in METADATA["tune"]}).items():
                grid[method] = replaced(grid.get(method, {}), lists)
        base = Config.from_dict(table, [text for text in overrides if text not in mine])
        return cls.of(base, **{**said, **chosen}, grid=grid)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return rungs(self.budget, self.base.rounds)

    def runs(self, trial: Trial, until: int, folder: Path) -> list[Run]:
        return seeded_runs(trial.arm, self.base.seed + FIRST_SEED, self.seeds, folder, until)

    def total_rounds(self, method: str) -> int:
        """Of all its trials and seeds, once all rungs are done."""
        before, total = 0, 0
        for rung in self.rungs:
            total += min(rung.settings, len(self.trials[method])) * (rung.rounds - before)
            before = rung.rounds
        return total * self.seeds

    def winner(self, method: str) -> Trial:
        return best(self.trials[method], 1)[0]


def held_out_seed(base: Config) -> int:
    """Of the records that neither tuning nor any split of the comparison trains on."""
    return base.seed if base.data.test_seed < 0 else base.data.test_seed


def best(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Those that came furthest, and of these the most accurate; the earlier where that is equal."""
    return sorted(trials, key=lambda trial: (-trial.rounds, -trial.scores.get(trial.rounds, 0.0)))[:count]


def _trials(arms: Sequence[Arm]) -> list[Trial]:
    """With short names for folders: the same setting has the same one whatever the budget is."""
    own = sum(arm.settings.keys() == {"method"} for arm in arms)  # the first, or none
    return [
        Trial(
            replace(
                arm, name=f"{_file_name(arm.config.method)}-{arm.config.hash[:8]}", labels={"method": _label(arm, i)}
            ),
            i,
        )
        for i, arm in enumerate(arms, 1 - own)
    ]


def _label(arm: Arm, number: int) -> str:
    return f"{find_method(arm.config.method).label} {f'setting {number}' if number else 'as in the config'}"


def _file_name(method: str) -> str:
    return re.sub(r"[^\w.+]+", "_", method, flags=re.ASCII)

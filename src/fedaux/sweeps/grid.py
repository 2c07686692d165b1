"""A sweep: a config, lists of values for some settings, and a number of seeds. Every combination is an arm."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedaux.config.methods import method_name
from fedaux.config.parsing import ConfigError, apply_override, dotted, require
from fedaux.config.schema import Config, read_table
from fedaux.core.errors import unknown_name
from fedaux.sweeps.arms import Arm, make_arm, with_unique_names, without_repeats
from fedaux.sweeps.chosen import AS_CONFIGURED, Chosen

METADATA = {  # keys of these tables beside their lists
    "sweep": ("seeds", "title", "about", "minutes"),
    "tune": ("methods", "budget", "seeds", "validation_fraction"),
}
_EXAMPLE = 'method = ["feddf+p", "fedaux"] or "data.alpha" = [0.01, 1.0]'


@dataclass(frozen=True)
class Run:
    """One arm with one seed, and the folder that it has for itself."""

    arm: Arm
    config: Config
    folder: Path
    until: int | None = None  # the round to stop after; None: the last

    @property
    def rounds(self) -> int:
        return self.config.rounds if self.until is None else self.until

    @property
    def label(self) -> str:
        return f"{self.arm.label}, seed {self.config.seed}"


@dataclass(frozen=True)
class Sweep:
    """Every arm is the base config with its own values of `axes`; each runs with seeds `base.seed`, `+ 1`, …"""

    base: Config
    axes: dict[str, tuple[Any, ...]]
    seeds: int
    arms: tuple[Arm, ...]
    chosen: Chosen = AS_CONFIGURED
    title: str = ""
    about: str = ""
    minutes: float = 0.0  # with two jobs on two idle cores; 0 if unknown

    @classmethod
    def of(
        cls,
        base: Config,
        axes: Mapping[str, Sequence[Any]],
        seeds: int = 1,
        chosen: Chosen = AS_CONFIGURED,
        **metadata: Any,
    ) -> Sweep:
        """`chosen` has settings for each method, which `axes` may still vary."""
        for key, values in axes.items():
            check_axis(key, values)
        require(
            isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1,
            f"sweep.seeds must be a whole number of at least 1, not {seeds!r}: how many, from the config's own on.",
        )
        lists = {key: tuple(map(method_name, values) if key == "method" else values) for key, values in axes.items()}
        products = itertools.product(*lists.values())
        arms = [make_arm(base, dict(zip(lists, values, strict=True)), chosen) for values in products]
        return cls(base, lists, seeds, tuple(with_unique_names(list(without_repeats(arms)))), chosen, **metadata)

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = (), chosen: Chosen = AS_CONFIGURED) -> Sweep:
        """A config with a table `[sweep]`; see `from_dict`."""
        table = read_table(path)
        require("sweep" in table, f"{path} has no table [sweep]: add one with lists of values, such as {_EXAMPLE}.")
        return cls.from_dict(table, overrides, chosen)

    @classmethod
    def from_dict(
        cls,
        table: Mapping[str, Any],
        overrides: Sequence[str] = (),
        chosen: Chosen = AS_CONFIGURED,
    ) -> Sweep:
        """`key=value` overrides settle a setting, which is then no longer swept; `sweep.key=[…]` changes its list."""
        rest = {key: value for key, value in table.items() if key not in ("sweep", "tune")}
        grid = table["sweep"]
        require(isinstance(grid, Mapping), f"sweep must be a table: write [sweep] and below it {_EXAMPLE}.")
        lists = dict(dotted(grid))
        for text in overrides:
            key = text.partition("=")[0].strip()
            if key.startswith("sweep."):
                changed: dict[str, Any] = {}
                apply_override(changed, text)
                lists |= dotted(changed["sweep"])
            else:
                lists.pop(key, None)
        seeds = lists.pop("seeds", 1)
        metadata = {key: lists.pop(key) for key in METADATA["sweep"] if key in lists}
        for key, value in metadata.items():
            fits = isinstance(value, (int, float) if key == "minutes" else str)
            require(fits, f"sweep.{key} must be {'a number' if key == 'minutes' else 'text'}, not {value!r}.")
        base = Config.from_dict(rest, [text for text in overrides if not text.strip().startswith("sweep.")])
        return cls.of(base, lists, seeds, chosen, **metadata)

    def runs(self, folder: Path) -> list[Run]:
        """Arm after arm, seed after seed."""
        return [run for arm in self.arms for run in self.runs_of(arm, folder)]

    def runs_of(self, arm: Arm, folder: Path) -> list[Run]:
        return seeded_runs(arm, self.base.seed, self.seeds, folder)


def seeded_runs(arm: Arm, first: int, count: int, folder: Path, until: int | None = None) -> list[Run]:
    """An arm with `count` seeds from `first` on, each in a folder of its own."""
    seeds = range(first, first + count)
    runs = folder / "runs"
    return [Run(arm, replace(arm.config, seed=seed), runs / f"{arm.name}-seed{seed}", until) for seed in seeds]


def check_axis(key: str, values: Any, table: str = "sweep") -> None:
    """Refuse what is no setting, or no list of different values."""
    known = [name for name, _ in dotted(Config().to_dict())]
    if key == "seed":
        raise ConfigError(
            f"{table}.seed: seeds are counted, not listed. Write seeds = 3, and seed = … for the first one."
        )
    if key not in known and not key.startswith(("data.options.", "aux.options.", "method_options.")):
        raise ConfigError(str(unknown_name(f"key of [{table}]", key, [*METADATA[table], *known])))
    require(
        isinstance(values, (list, tuple)),
        f"{table}: {key} must be a list of values, [{values!r}, …], not {values!r} alone.",
    )
    require(len(values) > 0, f"{table}: the list of {key} is empty; give it values, or leave {key} out of [{table}].")
    twice = [value for index, value in enumerate(values) if value in values[:index]]
    require(not twice, f"{table}: {key} has {twice[:1]} twice; every value makes an arm of its own.")

"""What a sweep runs: a config, lists of values for some settings, and a number of
seeds. Every combination is an arm.

`Arm` is one combination, `Sweep` the whole grid.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method, method_name
from fedaux.config.parsing import ConfigError, apply_override, dotted, require, set_key
from fedaux.config.schema import Config, read_table
from fedaux.core.errors import unknown_name
from fedaux.sweeps.method_settings import AS_CONFIGURED, MethodSettings

DottedSettings = dict[str, Any]  # dotted keys, as in --set
SYMBOLS = {
    "data.alpha": "α",
    "privacy.epsilon": "ε",
    "privacy.delta": "δ",
    "fraction": "C",
}
ANY = "any"  # the value of a setting that a method does not look at
LONGEST_NAME = 120  # characters of a folder's name; "-seed0" follows
METADATA = {  # keys of these tables next to their lists
    "sweep": ("seeds", "title", "about"),
    "tune": ("methods", "budget", "seeds", "validation_fraction"),
}
_EXAMPLE = 'method = ["feddf+p", "fedaux"] or "data.alpha" = [0.01, 1.0]'


@dataclass(frozen=True)
class Arm:
    """One combination of values, with a name for folders and labels for readers."""

    settings: DottedSettings
    config: Config
    name: str
    labels: dict[str, str]  # of each setting, for readers: FedAUX, α = 0.01

    @property
    def label(self) -> str:
        return ", ".join(self.labels.values()) or find_method(self.config.method).label


def value_label(key: str, value: Any) -> str:
    """Format a value for readers: FedAUX for a method, else with the name of its
    setting: α = 0.01.
    """
    if key == "method":
        return find_method(value).label
    if key in ("prototypes", "privacy.scorer"):  # names already
        return format_value(value)
    return f"{SYMBOLS.get(key, key)} = {format_value(value)}"


def make_arm(
    base: Config, settings: DottedSettings, chosen: MethodSettings = AS_CONFIGURED
) -> Arm:
    """Make an arm of the base config with these settings. Method options apply to the
    config's own method only.
    """
    table = base.to_dict()
    method = settings.get("method", base.method)
    if method != base.method:
        table["method_options"] = {}
    for key, value in {**chosen.of(method), **settings}.items():
        set_key(table, key, value, f"sweep: {key}")
    try:
        config = Config.from_dict(table)
    except ConfigError as error:
        values = [f"{key}={format_value(value)}" for key, value in settings.items()]
        raise ConfigError(
            "Cannot make this arm: the sweep cannot have an arm with "
            f"{' and '.join(values)}. {error} Leave these values out, or correct them."
        ) from error
    labels = {key: value_label(key, value) for key, value in settings.items()}
    return Arm(settings, config, make_name(settings) or config.method, labels)


def without_repeats(arms: Sequence[Arm]) -> Iterator[Arm]:
    """Merge arms that differ only in settings that their method ignores: FedAvg is the
    same for any ε.
    """
    seen: set[str] = set()
    for arm in arms:
        inert = [key for key in arm.settings if ignores(arm.config, key)]
        merged = _without(arm, inert) if inert else arm
        # A value may be a list, which no set can hold.
        identity = repr(merged.settings)
        if identity not in seen:
            seen.add(identity)
            yield merged


def _without(arm: Arm, inert: Sequence[str]) -> Arm:
    """Return an arm whose name and labels say that some settings can have any value."""
    settings = dict(arm.settings)
    labels = dict(arm.labels)
    for key in inert:
        settings[key] = ANY
        labels[key] = f"any {SYMBOLS.get(key, key)}"
    named = {key: value for key, value in arm.settings.items() if key not in inert}
    name = make_name(named) or arm.config.method
    return replace(arm, settings=settings, labels=labels, name=name)


def ignores(config: Config, key: str) -> bool:
    """Whether this setting makes no difference to a run of this config."""
    method = find_method(config.method)
    if key.startswith("privacy."):
        return not (config.releases or config.privacy.private_training)
    if key.startswith(("distill.", "teachers.")):
        return not method.distils
    if key.startswith("pretrain."):
        return not method.pretrained
    return key == "local.mu" and not method.proximal


def make_name(settings: DottedSettings) -> str:
    """Make the name of an arm's folder from its settings, as far as file systems
    allow.
    """
    pairs = [f"{key}={format_value(value)}" for key, value in settings.items()]
    name = "-".join(pairs).replace("method=", "")
    allowed = re.sub(r"[^\w.+=,-]+", "_", name, flags=re.ASCII)
    return allowed[:LONGEST_NAME]


def with_unique_names(arms: Sequence[Arm]) -> Iterator[Arm]:
    """Append part of the hash to the names of arms that would share one, as long or odd
    values may.
    """
    counts = Counter(arm.name for arm in arms)
    for arm in arms:
        if counts[arm.name] == 1:
            yield arm
        else:
            yield replace(arm, name=f"{arm.name}-{arm.config.hash[:8]}")


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Format settings for readers: local.lr = 0.1, local.epochs = 5."""
    pairs = [f"{key} = {format_value(value)}" for key, value in settings.items()]
    return ", ".join(pairs) or "as in the config"


def format_value(value: Any) -> str:
    """Format a value of any setting for readers and for folder names."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, Mapping):
        return _format_table(value)
    if isinstance(value, (list, tuple)):
        return " + ".join(map(format_value, value))
    return str(value)


def _format_table(table: Mapping[str, Any]) -> str:
    """Format a prototype with options of its own."""
    name = str(table.get("name", ""))
    options = [
        f"{key}={format_value(value)}" for key, value in table.items() if key != "name"
    ]
    if not options:
        return name
    return f"{name}({', '.join(options)})"


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed, in a folder of its own."""

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
    """A grid of runs: every arm is the base config with other values of `axes`, and
    runs with several seeds.

    Attributes:
        base: The settings that all arms share.
        axes: The values of each swept setting, by dotted key.
        seeds: The number of seeds of each arm: `base.seed`, `base.seed + 1`, …
        arms: The combinations of values, without repeats.
        chosen: Settings of each method, which `axes` may still vary.
        title: The title of the report.
        about: The purpose of the sweep.
    """

    base: Config
    axes: dict[str, tuple[Any, ...]]
    seeds: int
    arms: tuple[Arm, ...]
    chosen: MethodSettings = AS_CONFIGURED
    title: str = ""
    about: str = ""

    @classmethod
    def of(
        cls,
        base: Config,
        axes: Mapping[str, Sequence[Any]],
        seeds: int = 1,
        chosen: MethodSettings = AS_CONFIGURED,
        **metadata: Any,
    ) -> Sweep:
        """Make a sweep over all combinations of values.

        Args:
            base: The settings that all arms share.
            axes: The values of each swept setting, by dotted key:
                `{"data.alpha": [0.01, 1.0]}`.
            seeds: The number of seeds of each arm, from the config's seed on.
            chosen: Settings of each method, which `axes` may still vary.
            metadata: The fields `title` and `about`.

        Returns:
            The sweep.
        """
        for key, values in axes.items():
            check_axis(key, values)
        whole = isinstance(seeds, int) and not isinstance(seeds, bool)
        if not whole or seeds < 1:
            raise ConfigError(
                "Cannot run a sweep: sweep.seeds must be a whole number of at least 1, "
                f"not {seeds!r}. Write how many seeds to run, from the config's seed "
                "on."
            )
        lists = {key: tuple(values) for key, values in axes.items()}
        if "method" in lists:
            lists["method"] = tuple(map(method_name, axes["method"]))
        arms = []
        for values in itertools.product(*lists.values()):
            settings = dict(zip(lists, values, strict=True))
            arms.append(make_arm(base, settings, chosen))
        different = list(without_repeats(arms))
        named = tuple(with_unique_names(different))
        return cls(base, lists, seeds, named, chosen, **metadata)

    @classmethod
    def load(
        cls,
        path: str | Path,
        overrides: Sequence[str] = (),
        chosen: MethodSettings = AS_CONFIGURED,
    ) -> Sweep:
        """Read a sweep from a config file with a table `[sweep]`.

        Args:
            path: The TOML or JSON file.
            overrides: As in `from_dict`.
            chosen: Settings of each method, which the sweep may still vary.

        Returns:
            The sweep.
        """
        table = read_table(path)
        # --seeds alone makes no sweep of a config.
        listed = [
            override
            for override in overrides
            if _is_of_sweep(override) and not override.strip().startswith("sweep.seeds")
        ]
        if "sweep" not in table and not listed:
            raise ConfigError(
                f"Cannot run a sweep: {path} has no table [sweep]. Add one with lists "
                f"of values, such as {_EXAMPLE}."
            )
        return cls.from_dict({"sweep": {}, **table}, overrides, chosen)

    @classmethod
    def from_dict(
        cls,
        table: Mapping[str, Any],
        overrides: Sequence[str] = (),
        chosen: MethodSettings = AS_CONFIGURED,
    ) -> Sweep:
        """Build a sweep from the tables of a config with a table `[sweep]`.

        Args:
            table: The tables.
            overrides: `key=value` fixes a setting, which is then no longer swept.
                `sweep.key=[…]` replaces its list.
            chosen: Settings of each method, which the sweep may still vary.

        Returns:
            The sweep.
        """
        grid = table["sweep"]
        if not isinstance(grid, Mapping):
            raise ConfigError(
                "Cannot run a sweep: sweep must be a table. Write [sweep] and below it "
                f"{_EXAMPLE}."
            )
        lists = dict(dotted(grid))
        of_base = []
        for override in overrides:
            if _is_of_sweep(override):
                changed: dict[str, Any] = {}
                apply_override(changed, override)
                lists |= dotted(changed["sweep"])
            else:
                of_base.append(override)
                key = override.partition("=")[0].strip()
                lists.pop(key, None)
        seeds = lists.pop("seeds", 1)
        metadata = {key: lists.pop(key) for key in METADATA["sweep"] if key in lists}
        for key, value in metadata.items():
            require(
                isinstance(value, str),
                f"Cannot run a sweep: sweep.{key} must be text, not {value!r}. Correct "
                "the value.",
            )
        tables = {
            key: value for key, value in table.items() if key not in ("sweep", "tune")
        }
        base = Config.from_dict(tables, of_base)
        return cls.of(base, lists, seeds, chosen, **metadata)

    def runs(self, folder: Path) -> list[PlannedRun]:
        """List all runs, by arm and then by seed, in folders below `folder`."""
        return [run for arm in self.arms for run in self.runs_of(arm, folder)]

    def runs_of(self, arm: Arm, folder: Path) -> list[PlannedRun]:
        return seeded_runs(arm, self.base.seed, self.seeds, folder)


def _is_of_sweep(override: str) -> bool:
    return override.strip().startswith("sweep.")


def seeded_runs(
    arm: Arm, first: int, count: int, folder: Path, until: int | None = None
) -> list[PlannedRun]:
    """List the runs of an arm with `count` seeds from `first` on, each in a folder of
    its own.
    """
    runs = []
    for seed in range(first, first + count):
        config = replace(arm.config, seed=seed)
        runs.append(
            PlannedRun(arm, config, folder / "runs" / f"{arm.name}-seed{seed}", until)
        )
    return runs


def check_axis(key: str, values: Any, table: str = "sweep") -> None:
    """Raise an error unless `key` is a setting and `values` a list of different
    values.
    """
    if key == "seed":
        raise ConfigError(
            f"Cannot use {table}.seed: seeds are counted, not listed. Write seeds = 3, "
            "and seed = … for the first one."
        )
    settings = [name for name, _ in dotted(Config().to_dict())]
    if key not in settings and not key.startswith(
        ("data.options.", "aux.options.", "method_options.")
    ):
        names = [*METADATA[table], *settings]
        raise ConfigError(str(unknown_name(f"key of [{table}]", key, names)))
    if not isinstance(values, (list, tuple)):
        raise ConfigError(
            f"Cannot run a sweep: {table}: {key} must be a list of values, "
            f"[{values!r}, …], not {values!r} alone. Write such a list."
        )
    if not values:
        raise ConfigError(
            f"Cannot use {table}: the list of {key} is empty. Give it values, or leave "
            f"{key} out of [{table}]."
        )
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ConfigError(
                f"Cannot use {table}: {key} has {[value]} twice. Name every value once."
            )

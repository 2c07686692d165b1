"""What a sweep runs: a config, lists of values for some settings, and a number of
seeds. Every combination is an arm.

`MethodSettings` has settings that methods bring to a comparison, `Arm` is one
combination, `Sweep` the whole grid.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method, method_name
from fedaux.config.parsing import ConfigError, apply_override, dotted, require, set_key
from fedaux.config.presets import PRESETS
from fedaux.config.schema import Config, flatten, read_table
from fedaux.core.errors import unknown_name

Settings = dict[str, Any]  # dotted keys, as in --set
SYMBOLS = {
    "data.alpha": "α",
    "privacy.epsilon": "ε",
    "privacy.delta": "δ",
    "fraction": "C",
}
ANY = "any"  # the value of a setting that a method does not look at
WINNERS = "tuned.json"  # in the folder of a tuning
METADATA = {  # keys of these tables beside their lists
    "sweep": ("seeds", "title", "about"),
    "tune": ("methods", "budget", "seeds", "validation_fraction"),
}
_EXAMPLE = 'method = ["feddf+p", "fedaux"] or "data.alpha" = [0.01, 1.0]'
# and federation, method_options: no part of what is tuned
_OF_A_RUN = ("seed", "method", "device", "data.test_seed")


@dataclass(frozen=True)
class MethodSettings:
    """Settings for each method of a comparison, tuned or from presets."""

    # where they come from: completes "Settings: …" below a table
    source: str = "as in the config"
    # settings by dotted key, by method
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # settings of all methods, which `methods` may replace
    common: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = False  # whether a method that is not in `methods` must not be run
    # the config that was tuned, as tables
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> MethodSettings:
        """Read the winners that `fedaux tune` wrote.

        All seeds of the comparison then use the test records that were held out during
        tuning.

        Args:
            path: The folder that `fedaux tune` wrote, or its file of winners.

        Returns:
            The settings of every method that was tuned.
        """
        file = Path(path) / WINNERS if Path(path).is_dir() else Path(path)
        require(
            file.is_file(),
            (
                f"{file} is not there: name the folder that `fedaux tune` wrote, or "
                f"its {WINNERS}."
            ),
        )
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            methods = {
                name: found["settings"] for name, found in saved["methods"].items()
            }
            source = (
                f"tuned, {saved['budget']} settings a method tried on validation data"
            )
            return cls(
                source,
                methods,
                {"data.test_seed": saved["test_seed"]},
                True,
                saved["config"],
            )
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file} is not a file of winners ({error}); `fedaux tune` writes one."
            ) from error

    @classmethod
    def of_the_demo(cls) -> MethodSettings:
        """Read the winners of `fedaux tune studies/demo.toml`, which come with the
        package.
        """
        with as_file(files("fedaux.sweeps") / "demo.json") as path:
            return cls.read(path)

    @classmethod
    def preset(cls, *names: str) -> MethodSettings:
        """Combine presets by name. A preset for some methods only takes precedence for
        those methods.

        Args:
            names: Names of presets.

        Returns:
            The settings of all methods.
        """
        common: dict[str, Any] = {}
        methods: dict[str, dict[str, Any]] = {}
        for name in names:
            if name not in PRESETS:
                raise ConfigError(str(unknown_name("preset", name, PRESETS)))
            for method in PRESETS[name].methods:
                methods.setdefault(method, {}).update(PRESETS[name].settings)
            common |= {} if PRESETS[name].methods else PRESETS[name].settings
        return cls("; ".join(PRESETS[name].source for name in names), methods, common)

    def of(self, method: str) -> dict[str, Any]:
        """Return the settings of a method, by dotted key."""
        known = method in self.methods or not self.complete
        require(
            known,
            (
                f"{method} has not been tuned: tune it with the same budget, or leave "
                "it out of the comparison."
            ),
        )
        return {**self.common, **self.methods.get(method, {})}

    def refuse(self, overrides: Sequence[str]) -> None:
        """Raise an error if an override also has a setting here: one of the two would
        silently be lost.
        """
        keys = {
            key
            for settings in (self.common, *self.methods.values())
            for key in settings
        }
        for text in overrides:
            key = text.partition("=")[0].strip()
            require(
                key not in keys,
                (
                    f"--set {key}: the tuned settings or the preset have a {key} too; "
                    "leave out one."
                ),
            )

    def note(self, base: Config, swept: Sequence[str] = ()) -> str:
        """Return the source, and which settings differed during tuning."""
        if not self.config:
            return self.source
        ignored = {
            *_OF_A_RUN,
            *swept,
            *(key for settings in self.methods.values() for key in settings),
        }
        then, now = flatten(Config.from_dict(self.config)), flatten(base)
        differing = [
            key
            for key in sorted({*then, *now} - ignored)
            if then.get(key) != now.get(key)
            and not key.startswith(("federation.", "method_options."))
        ]
        return self.source + (
            f" with another {', '.join(differing)}" if differing else ""
        )


AS_CONFIGURED = MethodSettings()


@dataclass(frozen=True)
class Arm:
    """One combination of values, with a name for folders and labels for readers."""

    settings: Settings
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
    base: Config, settings: Settings, chosen: MethodSettings = AS_CONFIGURED
) -> Arm:
    """Make an arm of the base config with these settings. Method options apply to the
    config's own method only.
    """
    table = base.to_dict()
    if settings.get("method", base.method) != base.method:
        table["method_options"] = {}
    for key, value in {
        **chosen.of(settings.get("method", base.method)),
        **settings,
    }.items():
        set_key(table, key, value, f"sweep: {key}")
    parts = [f"{key}={format_value(value)}" for key, value in settings.items()]
    try:
        config = Config.from_dict(table)
    except ConfigError as error:
        raise ConfigError(
            f"the sweep cannot have an arm with {' and '.join(parts)}: {error}"
        ) from error
    labels = {key: value_label(key, value) for key, value in settings.items()}
    return Arm(settings, config, make_name(settings) or config.method, labels)


def without_repeats(arms: Sequence[Arm]) -> Iterator[Arm]:
    """Merge arms that differ only in settings that their method ignores: FedAVG is the
    same for any ε.
    """
    seen = set[str]()
    for arm in arms:
        inert = [key for key in arm.settings if ignores(arm.config, key)]
        rest = {key: value for key, value in arm.settings.items() if key not in inert}
        if inert:
            labels = {
                **arm.labels,
                **{key: f"any {SYMBOLS.get(key, key)}" for key in inert},
            }
            name = make_name(rest) or arm.config.method
            arm = replace(
                arm,
                settings={**arm.settings, **dict.fromkeys(inert, ANY)},
                name=name,
                labels=labels,
            )
        if repr(arm.settings) not in seen:
            seen.add(repr(arm.settings))
            yield arm


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


def make_name(settings: Settings) -> str:
    """Make the name of an arm's folder from its settings, as far as file systems
    allow.
    """
    text = "-".join(f"{key}={format_value(value)}" for key, value in settings.items())
    return re.sub(r"[^\w.+=,-]+", "_", text.replace("method=", ""), flags=re.ASCII)[
        :120
    ]


def with_unique_names(arms: list[Arm]) -> Iterator[Arm]:
    """Append part of the hash to the names of arms that would share one, as long or odd
    values may.
    """
    counts = Counter(arm.name for arm in arms)
    for arm in arms:
        yield (
            arm
            if counts[arm.name] == 1
            else replace(arm, name=f"{arm.name}-{arm.config.hash[:8]}")
        )


def describe(settings: Mapping[str, Any]) -> str:
    """Format settings for readers: local.lr = 0.1, local.epochs = 5."""
    return (
        ", ".join(f"{key} = {format_value(value)}" for key, value in settings.items())
        or "as in the config"
    )


def format_value(value: Any) -> str:
    """Format a value of any setting for readers and for folder names."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, Mapping):  # a prototype with options of its own
        options = ", ".join(
            f"{key}={format_value(item)}"
            for key, item in value.items()
            if key != "name"
        )
        return (
            f"{value.get('name', '')}({options})"
            if options
            else str(value.get("name", ""))
        )
    return (
        " + ".join(map(format_value, value))
        if isinstance(value, (list, tuple))
        else str(value)
    )


@dataclass(frozen=True)
class Run:
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
    """A grid of runs: every arm is the base config with its own values of `axes`, and
    runs with several seeds.

    Attributes:
        base: The settings that all arms share.
        axes: The values of each swept setting, by dotted key.
        seeds: The number of seeds of each arm: `base.seed`, `base.seed + 1`, …
        arms: The combinations of values, without repeats.
        chosen: Settings of each method, which `axes` may still vary.
        title: The title of the report.
        about: What the sweep is for.
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
            axes: The values of each swept setting, by dotted key: `{"data.alpha":
                [0.01, 1.0]}`.
            seeds: The number of seeds of each arm, from the config's own on.
            chosen: Settings of each method, which `axes` may still vary.
            metadata: The fields `title` and `about`.

        Returns:
            The sweep.
        """
        for key, values in axes.items():
            check_axis(key, values)
        require(
            isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1,
            (
                f"sweep.seeds must be a whole number of at least 1, not {seeds!r}: how "
                "many, from the config's own on."
            ),
        )
        lists = {
            key: tuple(map(method_name, values) if key == "method" else values)
            for key, values in axes.items()
        }
        products = itertools.product(*lists.values())
        arms = [
            make_arm(base, dict(zip(lists, values, strict=True)), chosen)
            for values in products
        ]
        return cls(
            base,
            lists,
            seeds,
            tuple(with_unique_names(list(without_repeats(arms)))),
            chosen,
            **metadata,
        )

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
        listed = [
            text
            for text in overrides
            if text.startswith("sweep.") and not text.startswith("sweep.seeds")
        ]
        require(
            "sweep" in table or bool(listed),
            (
                f"{path} has no table [sweep]: add one with lists of values, such as "
                f"{_EXAMPLE}."
            ),
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
            overrides: `key=value` fixes a setting, which is then no longer swept;
                `sweep.key=[…]` replaces its list.
            chosen: Settings of each method, which the sweep may still vary.

        Returns:
            The sweep.
        """
        rest = {
            key: value for key, value in table.items() if key not in ("sweep", "tune")
        }
        grid = table["sweep"]
        require(
            isinstance(grid, Mapping),
            f"sweep must be a table: write [sweep] and below it {_EXAMPLE}.",
        )
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
            require(isinstance(value, str), f"sweep.{key} must be text, not {value!r}.")
        base = Config.from_dict(
            rest, [text for text in overrides if not text.strip().startswith("sweep.")]
        )
        return cls.of(base, lists, seeds, chosen, **metadata)

    def runs(self, folder: Path) -> list[Run]:
        """List all runs, by arm and then by seed, in folders below `folder`."""
        return [run for arm in self.arms for run in self.runs_of(arm, folder)]

    def runs_of(self, arm: Arm, folder: Path) -> list[Run]:
        return seeded_runs(arm, self.base.seed, self.seeds, folder)


def seeded_runs(
    arm: Arm, first: int, count: int, folder: Path, until: int | None = None
) -> list[Run]:
    """List the runs of an arm with `count` seeds from `first` on, each in a folder of
    its own.
    """
    seeds = range(first, first + count)
    runs = folder / "runs"
    return [
        Run(arm, replace(arm.config, seed=seed), runs / f"{arm.name}-seed{seed}", until)
        for seed in seeds
    ]


def check_axis(key: str, values: Any, table: str = "sweep") -> None:
    """Raise an error unless `key` is a setting and `values` a list of different
    values.
    """
    known = [name for name, _ in dotted(Config().to_dict())]
    if key == "seed":
        raise ConfigError(
            f"{table}.seed: seeds are counted, not listed. Write seeds = 3, and seed = "
            "… for the first one."
        )
    if key not in known and not key.startswith(
        ("data.options.", "aux.options.", "method_options.")
    ):
        raise ConfigError(
            str(unknown_name(f"key of [{table}]", key, [*METADATA[table], *known]))
        )
    require(
        isinstance(values, (list, tuple)),
        (
            f"{table}: {key} must be a list of values, [{values!r}, …], not {values!r} "
            "alone."
        ),
    )
    require(
        len(values) > 0,
        (
            f"{table}: the list of {key} is empty; give it values, or leave {key} out "
            f"of [{table}]."
        ),
    )
    twice = [value for index, value in enumerate(values) if value in values[:index]]
    require(
        not twice,
        f"{table}: {key} has {twice[:1]} twice; every value makes an arm of its own.",
    )

"""Settings that methods bring to a comparison: tuned, or from presets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from fedaux.config.parsing import ConfigError
from fedaux.config.presets import PRESETS
from fedaux.config.schema import Config, flatten
from fedaux.core.errors import unknown_name

WINNERS = "tuned.json"  # in the folder of a tuning
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
        file = Path(path)
        if file.is_dir():
            file = file / WINNERS
        if not file.is_file():
            raise ConfigError(
                f"Cannot read tuned settings: {file} is not there. Name the folder "
                f"that `fedaux tune` wrote, or its {WINNERS}."
            )
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            budget = saved["budget"]
            winners = saved["methods"].items()
            return cls(
                source=f"tuned, {budget} settings a method tried on validation data",
                methods={name: winner["settings"] for name, winner in winners},
                common={"data.test_seed": saved["test_seed"]},
                complete=True,
                config=saved["config"],
            )
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"Cannot read tuned settings: {file} is not a file of winners "
                f"({error}). Run `fedaux tune` to write one."
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
        """Combine presets by name. The last one has the last word.

        Args:
            names: Names of presets.

        Returns:
            The settings of all methods.
        """
        common: dict[str, Any] = {}
        sources = []
        for name in names:
            if name not in PRESETS:
                raise ConfigError(str(unknown_name("preset", name, PRESETS)))
            preset = PRESETS[name]
            sources.append(preset.source)
            common |= preset.settings
        return cls("; ".join(sources), {}, common)

    def of(self, method: str) -> dict[str, Any]:
        """Return the settings of a method, by dotted key."""
        if self.complete and method not in self.methods:
            raise ConfigError(
                f"Cannot compare {method}: it has not been tuned. Tune it with the "
                "same budget, or leave it out of the comparison."
            )
        return {**self.common, **self.methods.get(method, {})}

    @property
    def keys(self) -> set[str]:
        """The settings that any method brings, by dotted key."""
        return set(self.common).union(*self.methods.values())

    def refuse(self, overrides: Sequence[str]) -> None:
        """Raise an error if an override also has a setting here: one of the two would
        silently be lost.
        """
        keys = self.keys
        for override in overrides:
            key = override.partition("=")[0].strip()
            if key in keys:
                raise ConfigError(
                    f"Cannot use --set {key}: the tuned settings or the preset have a "
                    f"{key} too. Leave out one."
                )

    def note(self, base: Config, swept: Sequence[str] = ()) -> str:
        """Return the source, and which settings differed during tuning."""
        if not self.config:
            return self.source
        then = flatten(Config.from_dict(self.config))
        now = flatten(base)
        tuned: set[str] = set().union(*self.methods.values())
        compared = {*then, *now}.difference(_OF_A_RUN, swept, tuned)
        differing = []
        for key in sorted(compared):
            if key.startswith(("federation.", "method_options.")):
                continue
            if then.get(key) != now.get(key):
                differing.append(key)
        if not differing:
            return self.source
        return f"{self.source} with another {', '.join(differing)}"


AS_CONFIGURED = MethodSettings()

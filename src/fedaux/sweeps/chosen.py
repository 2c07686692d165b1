"""Settings that methods take to a comparison: winners of a tuning, a preset, or neither, and words that say which."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from fedaux.config.parsing import ConfigError, require
from fedaux.config.presets import PRESETS
from fedaux.config.schema import Config, flatten
from fedaux.core.errors import unknown_name

WINNERS = "tuned.json"  # in the folder of a tuning
_OF_A_RUN = ("seed", "method", "device", "data.test_seed")  # and federation, method_options: no part of what is tuned


@dataclass(frozen=True)
class Chosen:
    """`source` completes "Settings: …" below a table. A method that is not in `methods` has what `common` says."""

    source: str = "as in the config"
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # dotted keys, by method
    common: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = False  # whether a method that is not in `methods` must not be run
    config: Mapping[str, Any] = field(default_factory=dict)  # that was tuned, as tables

    @classmethod
    def read(cls, path: str | Path) -> Chosen:
        """The winners that `fedaux tune` has left in a folder or file. All seeds get the test records of the tuning."""
        file = Path(path) / WINNERS if Path(path).is_dir() else Path(path)
        require(file.is_file(), f"{file} is not there: name the folder that `fedaux tune` wrote, or its {WINNERS}.")
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            methods = {name: found["settings"] for name, found in saved["methods"].items()}
            source = f"tuned, {saved['budget']} settings a method tried on validation data"
            return cls(source, methods, {"data.test_seed": saved["test_seed"]}, True, saved["config"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(f"{file} is no file of winners ({error}); `fedaux tune` writes one.") from error

    @classmethod
    def of_the_demo(cls) -> Chosen:
        """The winners of `fedaux tune studies/demo.toml`, which come with the package."""
        with as_file(files("fedaux.sweeps") / "demo.json") as path:
            return cls.read(path)

    @classmethod
    def preset(cls, *names: str) -> Chosen:
        """Presets by name. One that is for some methods only has the last word on them."""
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
        """What a method runs with."""
        known = method in self.methods or not self.complete
        require(known, f"{method} has not been tuned: tune it with the same budget, or leave it out of the comparison.")
        return {**self.common, **self.methods.get(method, {})}

    def refuse(self, overrides: Sequence[str]) -> None:
        """What is set by hand must not be set here as well: one of the two would silently lose."""
        keys = {key for settings in (self.common, *self.methods.values()) for key in settings}
        for text in overrides:
            key = text.partition("=")[0].strip()
            require(key not in keys, f"--set {key}: the tuned settings or the preset have a {key} too; leave out one.")

    def note(self, base: Config, swept: Sequence[str] = ()) -> str:
        """The source; with what differed when it was tuned."""
        if not self.config:
            return self.source
        ignored = {*_OF_A_RUN, *swept, *(key for settings in self.methods.values() for key in settings)}
        then, now = flatten(Config.from_dict(self.config)), flatten(base)
        differing = [
            key
            for key in sorted({*then, *now} - ignored)
            if then.get(key) != now.get(key) and not key.startswith(("federation.", "method_options."))
        ]
        return self.source + (f" with another {', '.join(differing)}" if differing else "")


AS_CONFIGURED = Chosen()

"""An arm of a sweep: one combination of values, the config that it makes, and its names for folders and readers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.parsing import ConfigError, set_key
from fedaux.config.schema import Config
from fedaux.sweeps.chosen import AS_CONFIGURED, Chosen

Settings = dict[str, Any]  # dotted keys, as in --set
SYMBOLS = {"data.alpha": "α", "privacy.epsilon": "ε", "privacy.delta": "δ", "fraction": "C"}
ANY = "any"  # the value of a setting that a method does not look at


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
    """A value for readers: FedAUX for a method, else with the name of its setting: α = 0.01."""
    if key == "method":
        return find_method(value).label
    if key in ("prototypes", "privacy.scorer"):  # names already
        return format_value(value)
    return f"{SYMBOLS.get(key, key)} = {format_value(value)}"


def make_arm(base: Config, settings: Settings, chosen: Chosen = AS_CONFIGURED) -> Arm:
    """The base config with these settings. Options of a method are those of the config's own method alone."""
    table = base.to_dict()
    if settings.get("method", base.method) != base.method:
        table["method_options"] = {}
    for key, value in {**chosen.of(settings.get("method", base.method)), **settings}.items():
        set_key(table, key, value, f"sweep: {key}")
    parts = [f"{key}={format_value(value)}" for key, value in settings.items()]
    try:
        config = Config.from_dict(table)
    except ConfigError as error:
        raise ConfigError(f"the sweep cannot have an arm with {' and '.join(parts)}: {error}") from error
    labels = {key: value_label(key, value) for key, value in settings.items()}
    return Arm(settings, config, make_name(settings) or config.method, labels)


def without_repeats(arms: Sequence[Arm]) -> Iterator[Arm]:
    """Arms that differ in nothing that their method looks at are one: FedAVG is the same for any ε."""
    seen = set[str]()
    for arm in arms:
        inert = [key for key in arm.settings if ignores(arm.config, key)]
        rest = {key: value for key, value in arm.settings.items() if key not in inert}
        if inert:
            labels = {**arm.labels, **{key: f"any {SYMBOLS.get(key, key)}" for key in inert}}
            name = make_name(rest) or arm.config.method
            arm = replace(arm, settings={**arm.settings, **dict.fromkeys(inert, ANY)}, name=name, labels=labels)
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
    """Of the folder of an arm: what a file system allows of its settings."""
    text = "-".join(f"{key}={format_value(value)}" for key, value in settings.items())
    return re.sub(r"[^\w.+=,-]+", "_", text.replace("method=", ""), flags=re.ASCII)[:120]


def with_unique_names(arms: list[Arm]) -> Iterator[Arm]:
    """Long or odd values may give the same name; such arms get a piece of their hash."""
    counts = Counter(arm.name for arm in arms)
    for arm in arms:
        yield arm if counts[arm.name] == 1 else replace(arm, name=f"{arm.name}-{arm.config.hash[:8]}")


def describe(settings: Mapping[str, Any]) -> str:
    """For readers: local.lr = 0.1, local.epochs = 5."""
    return ", ".join(f"{key} = {format_value(value)}" for key, value in settings.items()) or "as in the config"


def format_value(value: Any) -> str:
    """A value of any setting for readers and for names of folders."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, Mapping):  # a prototype with options of its own
        options = ", ".join(f"{key}={format_value(item)}" for key, item in value.items() if key != "name")
        return f"{value.get('name', '')}({options})" if options else str(value.get("name", ""))
    return " + ".join(map(format_value, value)) if isinstance(value, (list, tuple)) else str(value)

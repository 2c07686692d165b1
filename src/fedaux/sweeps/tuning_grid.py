"""What `fedaux tune` tries: one table of values, the part of it that concerns a method,
and a sample as large as the budget in which all methods have the same values of the
settings that they share, as far as they share them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedaux.config.methods import METHODS, Method, find_method
from fedaux.config.parsing import ConfigError, dotted
from fedaux.config.schema import Config
from fedaux.core.rng import numpy_stream
from fedaux.models.registry import option_default
from fedaux.sweeps.grid import Arm, DottedSettings, check_axis, make_arm

# of a setting; or a table of several settings that only make sense together
Value = Any
# by setting, or by the table that several settings are in
Lists = Mapping[str, tuple[Value, ...]]

SGD_RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
ADAM_RATES = (3e-4, 1e-3, 3e-3)
OPTIMIZER_VALUES = (
    *({"optimizer": "sgd", "lr": rate} for rate in SGD_RATES),
    *({"optimizer": "adam", "lr": rate} for rate in ADAM_RATES),
)
TUNING_GRID: dict[str, tuple[Value, ...]] = {
    "local": OPTIMIZER_VALUES,
    "local.epochs": (1, 5, 20, 60),
    "local.mu": (0.001, 0.01, 0.1, 1.0),  # FedProx
    "distill.lr": (1e-5, 1e-4, 1e-3, 1e-2, 1e-1),  # methods that distil
    "distill.steps": (50, 200, 1000),
    "norm": ("batch", "group"),  # of all prototypes that have the option
}
# of a method and of its form with +p
METHOD_GRIDS: dict[str, dict[str, tuple[Value, ...]]] = {
    "fedaux": {
        "teachers.standing": (False, True),
        "head_init": ("random", "private-head"),
    },
    "fedavgm": {
        "method_options.beta": (0.5, 0.9),
        "method_options.server_lr": (0.3, 1.0),
    },
    "fedadam": {"method_options.server_lr": (1e-3, 1e-2, 1e-1)},
    "fedyogi": {"method_options.server_lr": (1e-3, 1e-2, 1e-1)},
    "scaffold": {"method_options.server_lr": (0.5, 1.0)},
    "feddyn": {"method_options.alpha": (0.001, 0.01, 0.1, 1.0)},
}
METHOD_GRIDS["fedaux-scaffold"] = {**METHOD_GRIDS["fedaux"], **METHOD_GRIDS["scaffold"]}


@dataclass(frozen=True)
class Axis:
    """Values of one setting, or of several at once, each as dotted keys. A method may
    allow some of them only.
    """

    key: str
    values: tuple[DottedSettings, ...]
    allowed: tuple[DottedSettings, ...]

    def drawn(self, seed: int) -> Iterator[DottedSettings]:
        """Yield all values in random order, repeatedly. The same for all methods,
        except values one does not allow.
        """
        for cycle in itertools.count():
            stream = numpy_stream(seed, "tune", self.key, cycle)
            for index in stream.permutation(len(self.values)):
                if self.values[index] in self.allowed:
                    yield self.values[index]


def read_grid(table: Mapping[str, Any]) -> dict[str, dict[str, tuple[Value, ...]]]:
    """`[tune]` of a config: by method the lists that take the place of `TUNING_GRID`'s, or
    "" has those for all methods.
    """
    grids: dict[str, dict[str, tuple[Value, ...]]] = {}
    for name, value in table.items():
        method = name if name in METHODS or ":" in name else ""
        if not method:
            lists = dotted({name: value})
        elif isinstance(value, Mapping):
            lists = dotted(value)
        else:
            raise ConfigError(
                f"Cannot use tune.{name}: it must be a table of lists. Write "
                f"[tune.{name!r}]."
            )
        for key, values in lists:
            if key != "norm":
                for setting in _keys(key, values):
                    check_axis(setting, values, "tune")
            grids.setdefault(method, {})[key] = tuple(values)
    return grids


def replaced(lists: Lists, more: Lists) -> dict[str, tuple[Value, ...]]:
    """`more` in place of every list that sets one of the same keys."""
    taken: set[str] = set()
    for key, values in more.items():
        taken.update(_keys(key, values))
    kept = {
        key: values
        for key, values in lists.items()
        if taken.isdisjoint(_keys(key, values))
    }
    return {**kept, **more}


def axes(
    base: Config, name: str, lists: Mapping[str, Lists] | None = None
) -> tuple[Axis, ...]:
    """Return the axes to try for a method. A user's list, in `lists` by method or
    below "" for all, replaces every list that sets one of the same keys.
    """
    method = find_method(name)
    options = METHOD_GRIDS.get(name.removesuffix("+p"), {})
    possible = {
        key: values
        for key, values in options.items()
        if _possible(base, name, key, values)
    }
    grid = {**TUNING_GRID, **possible}
    if method.pretrained and base.pretrain.trains:
        # another norm is another extractor to train; who wants that can say so
        del grid["norm"]
    for level in ("", name):
        grid = replaced(grid, (lists or {}).get(level, {}))
    candidates = [_axis(key, values, base, method) for key, values in grid.items()]
    return tuple(axis for axis in candidates if axis.allowed)


def at_edge(grid: Sequence[Axis], settings: DottedSettings) -> list[str]:
    """The settings whose number is the smallest or the largest of its list, so that the
    best may lie beyond it.

    Numbers are compared among values that are otherwise alike: the rates of SGD. A
    whole number 1 has none below.
    """
    edges = []
    for axis in grid:
        keys = dict.fromkeys(itertools.chain.from_iterable(axis.allowed))
        chosen = {key: settings[key] for key in keys if key in settings}
        for key, number in chosen.items():
            if _is_number(number) and _is_outermost(axis, chosen, key):
                edges.append(key)
    return edges


def _is_outermost(axis: Axis, chosen: DottedSettings, key: str) -> bool:
    """Whether no value of the axis that is otherwise like the chosen one has a smaller
    number, or none has a larger.
    """
    others = {name: value for name, value in chosen.items() if name != key}
    alike = [
        value[key]
        for value in axis.allowed
        if key in value and others.items() <= value.items()
    ]
    if len(set(alike)) < 2:
        return False
    number = chosen[key]
    if number == max(alike):
        return True
    return bool(number == min(alike)) and number != 1


def sample_arms(
    base: Config, name: str, grid: Sequence[Axis], budget: int, seed: int
) -> list[Arm]:
    """Arms to try: the config's own settings first, where the method allows them, then
    the whole grid, or a sample.
    """
    arms: dict[Config, Arm] = {}
    for settings in itertools.chain([{}], _combinations(grid, budget, seed)):
        try:
            arm = make_arm(base, {"method": name, **settings})
        except ConfigError:
            if settings:
                raise
            continue  # SCAFFOLD, where the config has Adam
        arms.setdefault(arm.config, arm)
        if len(arms) == budget:
            break
    return list(arms.values())


def _combinations(
    grid: Sequence[Axis], budget: int, seed: int
) -> Iterator[DottedSettings]:
    whole = math.prod(len(axis.allowed) for axis in grid)
    products: Iterable[tuple[Any, ...]]
    if whole <= budget:
        products = itertools.product(*(axis.allowed for axis in grid))
    else:
        products = zip(*(axis.drawn(seed) for axis in grid), strict=False)
    for values in itertools.islice(products, max(whole, 1000 * budget)):
        settings: DottedSettings = {}
        for value in values:
            settings |= value
        yield settings


def _axis(key: str, values: Sequence[Value], base: Config, method: Method) -> Axis:
    unique: list[DottedSettings] = []
    for value in values:
        settings = _settings(key, value, base)
        if settings and settings not in unique:
            unique.append(settings)
    setting_names = itertools.chain.from_iterable(unique)
    if not all(_concerns(name, base, method) for name in setting_names):
        return Axis(key, tuple(unique), allowed=())
    allows = _allows(method)
    allowed = [settings for settings in unique if allows(settings)]
    return Axis(key, tuple(unique), tuple(allowed))


def _possible(base: Config, name: str, key: str, values: Sequence[Value]) -> bool:
    """Whether a config leaves the choice: standing teachers and private heads do not go
    with everything.
    """
    if key.startswith("method_options."):
        return True
    # which every method allows
    sgd = {"local.optimizer": "sgd", "local.momentum": 0.0}
    try:
        for value in values:
            make_arm(base, {"method": name, key: value, **sgd})
    except ConfigError:
        return False
    return True


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _settings(key: str, value: Value, base: Config) -> DottedSettings:
    """A value as dotted keys, or {} where there is nothing to set."""
    if key == "norm":
        return _with_norm(value, base)
    settings = {key: value}
    if isinstance(value, Mapping):
        settings = {f"{key}.{name}": item for name, item in value.items()}
    if settings.get("local.optimizer") == "adam" and base.local.momentum:
        settings["local.momentum"] = 0.0  # it is SGD's
    return settings


def _with_norm(norm: str, base: Config) -> DottedSettings:
    """All prototypes that have the option with this norm; left out where it is their
    default.
    """
    defaults = [option_default(spec.name, "norm") for spec in base.prototypes]
    if all(default is None for default in defaults):
        return {}
    prototypes = []
    for spec, default in zip(base.prototypes, defaults, strict=True):
        prototype = {"name": spec.name, **dict(spec.options)}
        prototype.pop("norm", None)
        if default not in (None, norm):
            prototype["norm"] = norm
        prototypes.append(prototype)
    return {"prototypes": prototypes}


def _keys(key: str, values: Any) -> list[str]:
    """The settings that a list sets: one, or with tables as values, several."""
    if key in ("norm", "prototypes"):
        return ["prototypes"]
    tables = []
    if isinstance(values, (list, tuple)):
        tables = [value for value in values if isinstance(value, Mapping)]
    names = dict.fromkeys(itertools.chain.from_iterable(tables))
    return [f"{key}.{name}" for name in names] or [key]


def _concerns(key: str, base: Config, method: Method) -> bool:
    """Whether a setting makes any difference to a method."""
    table, _, name = key.partition(".")
    if table == "method_options":
        hooks = method.make_hooks({})
        return hooks is not None and name in {field.name for field in fields(hooks)}
    settings = {
        "local.mu": method.proximal,
        "prototypes": not base.head_only,
        "head_init": not method.analytic,
    }
    if key in settings:
        return settings[key]
    releases = "releases" in (method.sends, _head(base, method))
    tables = {
        "local": not method.analytic,
        "distill": method.distils,
        "teachers": method.scores or (name == "standing" and method.distils),
        "privacy": method.scores or releases,
    }
    return tables.get(table, True)


def _head(base: Config, method: Method) -> str:
    """Return what the head that training starts from is computed from."""
    if method.analytic or base.head_init in ("auto", "random"):
        return ""
    return find_method(base.head_init).sends


def _allows(method: Method) -> Callable[[DottedSettings], bool]:
    """Return whether a method can train with some settings: SCAFFOLD needs SGD."""
    hooks = method.make_hooks({})
    if hooks is None:
        return lambda settings: True
    possible = hooks.optimizers

    def allows(settings: DottedSettings) -> bool:
        return settings.get("local.optimizer", possible[0]) in possible

    return allows

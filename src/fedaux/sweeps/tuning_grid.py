"""What `fedaux tune` tries: one table of values, the part of it that concerns a method,
and a sample as large as the budget in which all methods have the same values of the
settings that they share, as far as they share them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedaux.config.methods import METHODS, Method, find_method
from fedaux.config.parsing import ConfigError, dotted, require
from fedaux.config.schema import Config
from fedaux.core.rng import numpy_stream
from fedaux.models.registry import option_default
from fedaux.sweeps.grid import Arm, Settings, check_axis, make_arm

# of a setting; or a table of several settings that only make sense together
Value = Any
# by setting, or by the table that several settings are in
Lists = Mapping[str, tuple[Value, ...]]

GRID: dict[str, tuple[Value, ...]] = {
    "local": (
        *(
            {"optimizer": "sgd", "lr": lr}
            for lr in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
        ),
        *({"optimizer": "adam", "lr": lr} for lr in (3e-4, 1e-3, 3e-3)),
    ),
    "local.epochs": (1, 5, 20, 60),
    "local.mu": (0.001, 0.01, 0.1, 1.0),  # FedPROX
    "distill.lr": (1e-5, 1e-4, 1e-3, 1e-2, 1e-1),  # methods that distil
    "distill.epochs": (1, 5, 20),
    "norm": ("batch", "group"),  # of all prototypes that have the option
}
# of a method and of its form with +p
OPTIONS: dict[str, dict[str, tuple[Value, ...]]] = {
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
OPTIONS["fedaux-scaffold"] = {**OPTIONS["fedaux"], **OPTIONS["scaffold"]}


@dataclass(frozen=True)
class Axis:
    """Values of one setting, or of several at once, each as dotted keys. A method may
    allow some of them only.
    """

    key: str
    values: tuple[Settings, ...]
    allowed: tuple[Settings, ...]

    def drawn(self, seed: int) -> Iterator[Settings]:
        """Yield all values in random order, repeatedly; the same for all methods,
        except values one does not allow.
        """
        for cycle in itertools.count():
            for index in numpy_stream(seed, "tune", self.key, cycle).permutation(
                len(self.values)
            ):
                if self.values[index] in self.allowed:
                    yield self.values[index]


def read_grid(table: Mapping[str, Any]) -> dict[str, dict[str, tuple[Value, ...]]]:
    """`[tune]` of a config: by method the lists that take the place of `GRID`'s; "" has
    those for all methods.
    """
    found: dict[str, dict[str, tuple[Value, ...]]] = {}
    for name, value in table.items():
        method = name if name in METHODS or ":" in name else ""
        require(
            not method or isinstance(value, Mapping),
            f"tune.{name} must be a table of lists: [tune.{name!r}].",
        )
        for key, values in dotted(value if method else {name: value}):
            if key != "norm":
                for one in _keys(key, values):
                    check_axis(one, values, "tune")
            found.setdefault(method, {})[key] = tuple(values)
    return found


def replaced(lists: Lists, more: Lists) -> dict[str, tuple[Value, ...]]:
    """`more` in place of every list that sets one of the same keys."""
    taken = {key for name, values in more.items() for key in _keys(name, values)}
    return {
        key: values
        for key, values in lists.items()
        if not taken & set(_keys(key, values))
    } | dict(more)


def axes(
    base: Config, name: str, own: Mapping[str, Lists] | None = None
) -> tuple[Axis, ...]:
    """Return the axes to try for a method. A user's own list replaces every list that
    sets one of the same keys.
    """
    method, options = find_method(name), OPTIONS.get(name.removesuffix("+p"), {})
    lists = {
        **GRID,
        **{
            key: values
            for key, values in options.items()
            if _possible(base, name, key, values)
        },
    }
    if method.pretrained and base.pretrain.epochs > 0:
        # another norm is another extractor to train; who wants that can say so
        del lists["norm"]
    for more in ((own or {}).get("", {}), (own or {}).get(name, {})):
        lists = replaced(lists, more)
    made = [_axis(key, values, base, method) for key, values in lists.items()]
    return tuple(axis for axis in made if axis.allowed and len(axis.values) > 0)


def at_edge(grid: Sequence[Axis], settings: Settings) -> list[str]:
    """The settings whose number is the smallest or the largest of its list, so that the
    best may lie beyond it.

    Numbers are compared among values that are otherwise alike: the rates of SGD. A
    whole number 1 has none below.
    """
    found = []
    for axis in grid:
        own = {
            key: settings[key]
            for value in axis.allowed
            for key in value
            if key in settings
        }
        for key in [key for key, value in own.items() if _is_number(value)]:
            rest = {name: value for name, value in own.items() if name != key}
            alike = [
                value[key]
                for value in axis.allowed
                if key in value and rest.items() <= value.items()
            ]
            lowest = own[key] == min(alike) and own[key] != 1
            if len(set(alike)) > 1 and (lowest or own[key] == max(alike)):
                found.append(key)
    return found


def sample(
    base: Config, name: str, grid: Sequence[Axis], budget: int, seed: int
) -> list[Arm]:
    """Arms to try: the config's own settings first, where the method allows them; then
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


def _combinations(grid: Sequence[Axis], budget: int, seed: int) -> Iterator[Settings]:
    whole = math.prod(len(axis.allowed) for axis in grid)
    if whole <= budget:
        products = itertools.product(*(axis.allowed for axis in grid))
    else:
        products = zip(*(axis.drawn(seed) for axis in grid), strict=False)  # type: ignore[assignment]
    for parts in itertools.islice(products, max(whole, 1000 * budget)):
        yield {key: value for part in parts for key, value in part.items()}


def _axis(key: str, values: Sequence[Value], base: Config, method: Method) -> Axis:
    expanded = tuple(_settings(key, value, base) for value in values)
    unique = tuple(
        value for i, value in enumerate(expanded) if value and value not in expanded[:i]
    )
    allows = _allows(method)
    concerned = all(_concerns(one, base, method) for value in unique for one in value)
    return Axis(
        key,
        unique,
        tuple(value for value in unique if allows(value)) if concerned else (),
    )


def _possible(base: Config, name: str, key: str, values: Sequence[Value]) -> bool:
    """Whether a config leaves the choice: standing teachers and private heads do not go
    with everything.
    """
    if key.startswith("method_options."):
        return True
    try:
        # which every method allows
        sgd = {"local.optimizer": "sgd", "local.momentum": 0.0}
        return all(
            make_arm(base, {"method": name, key: value, **sgd}) for value in values
        )
    except ConfigError:
        return False


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _settings(key: str, value: Value, base: Config) -> Settings:
    """A value as dotted keys; {} where there is nothing to set."""
    if key == "norm":
        return _with_norm(value, base)
    settings = (
        {f"{key}.{name}": item for name, item in value.items()}
        if isinstance(value, Mapping)
        else {key: value}
    )
    if settings.get("local.optimizer") == "adam" and base.local.momentum:
        settings["local.momentum"] = 0.0  # it is SGD's
    return settings


def _with_norm(norm: str, base: Config) -> Settings:
    """All prototypes that have the option with this norm; left out where it is their
    default.
    """
    changed = []
    for spec in base.prototypes:
        default, options = option_default(spec.name, "norm"), dict(spec.options)
        options.pop("norm", None)
        changed.append(
            {
                "name": spec.name,
                **options,
                **({} if default in (None, norm) else {"norm": norm}),
            }
        )
    known = any(
        option_default(spec.name, "norm") is not None for spec in base.prototypes
    )
    return {"prototypes": changed} if known else {}


def _keys(key: str, values: Any) -> list[str]:
    """The settings that a list sets: one, or with tables as values, several."""
    tables = (
        [value for value in values if isinstance(value, Mapping)]
        if isinstance(values, (list, tuple))
        else []
    )
    if key == "prototypes" or not tables:
        return ["prototypes" if key == "norm" else key]
    return list(dict.fromkeys(f"{key}.{name}" for table in tables for name in table))


def _concerns(key: str, base: Config, method: Method) -> bool:
    """Whether a setting makes any difference to a method."""
    table, _, name = key.partition(".")
    if table == "method_options":
        hooks = method.make_hooks({})
        return hooks is not None and name in {field.name for field in fields(hooks)}
    tables = {
        "local": not method.analytic,
        "distill": method.distils,
        "teachers": method.scores or (name == "standing" and method.distils),
        "privacy": method.scores or "releases" in (method.sends, _head(base, method)),
    }
    return {
        "local.mu": method.proximal,
        "prototypes": not base.head_only,
        "head_init": not method.analytic,
    }.get(key, tables.get(table, True))


def _head(base: Config, method: Method) -> str:
    """Return what the head that training starts from is computed from."""
    return (
        ""
        if method.analytic or base.head_init in ("auto", "random")
        else find_method(base.head_init).sends
    )


def _allows(method: Method) -> Callable[[Settings], bool]:
    hooks = method.make_hooks({})
    return lambda settings: (
        hooks is None
        or settings.get("local.optimizer", hooks.optimizers[0]) in hooks.optimizers
    )

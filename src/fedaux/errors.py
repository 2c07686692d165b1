"""Errors that a user can act on, and the two look-ups that most of them come from: by name, and `module:function`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import Any


class FedauxError(Exception):
    """Shown as one paragraph at the terminal; anything else is a bug and keeps its traceback."""


class UnknownNameError(FedauxError, ValueError):
    """A word that is not among the allowed ones."""


def unknown(what: str, given: str, allowed: Iterable[str]) -> UnknownNameError:
    """All that is allowed, and the nearest: `raise unknown("prototype", "resnet", names)`."""
    words = list(allowed)
    near = difflib.get_close_matches(given, words, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return UnknownNameError(f"unknown {what} {given!r}{hint}; choose from {', '.join(words) or 'none at all'}")


def import_function(name: str, what: str) -> Callable[..., Any]:
    """A user's own `module:function`."""
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), function]):
        raise UnknownNameError(f"{what} {name!r} is not of the form module:function")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, something that it imports is not
        raise UnknownNameError(f"{what} {name!r}: no module {module!r}; is its folder on PYTHONPATH?") from error
    made = getattr(found, function, None)
    if not callable(made):
        public = [key for key, value in vars(found).items() if callable(value) and not key.startswith("_")]
        raise unknown(f"function of module {module!r}", function, public)
    return made  # type: ignore[no-any-return]

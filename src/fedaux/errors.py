"""Errors that a user can act on: they name what is wrong, what is allowed and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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

"""Errors that a user can act on, their exit codes, and the look-ups most come from: by name, and `module:function`."""

from __future__ import annotations

import difflib
import errno
import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """What the program tells the shell."""

    NEGATIVE = 1  # a verdict: an audit that found a violation, a site with problems
    USAGE = 2  # words that the command does not know
    SETTINGS = 3  # a setting that cannot be right
    DATA = 4  # data that are not there, or not as they should be
    FOLDER = 5  # a folder that holds no run, another run, or a damaged one
    MISSING = 6  # a package that is not installed
    CLIENTS = 7  # too few clients that answer
    DIVERGED = 8  # training that left the real numbers
    DISK = 9  # a disk that is full or may not be written
    PRIVACY = 10  # a budget that would be exceeded
    BUG = 70
    STOPPED = 130


class FedauxError(Exception):
    """Shown as one paragraph at the terminal, which then ends with `code`; anything else is a bug."""

    code = Exit.DATA


class UnknownNameError(FedauxError, ValueError):
    """A word that is not among the allowed ones."""

    code = Exit.SETTINGS


class MissingPackageError(FedauxError, ImportError):
    """An optional part that was not installed; the message has the command that does it."""

    code = Exit.MISSING


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def exit_code(error: BaseException) -> Exit:
    """How a program that ends with this error should end."""
    if isinstance(error, FedauxError):
        return error.code
    if isinstance(error, ImportError):
        return Exit.MISSING
    if isinstance(error, OSError):
        return Exit.DISK if isinstance(error, PermissionError) or error.errno in _NO_ROOM else Exit.DATA
    return Exit.DATA if isinstance(error, (ValueError, OverflowError)) else Exit.BUG


def unknown(what: str, given: str, allowed: Iterable[str]) -> UnknownNameError:
    """All that is allowed, and the nearest: `raise unknown("prototype", "resnet", names)`."""
    words = list(allowed)
    near = difflib.get_close_matches(given, words, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return UnknownNameError(f"unknown {what} {given!r}{hint}; choose from {', '.join(words) or 'none at all'}")


def import_attribute(name: str, what: str, noun: str, fits: Callable[[Any], bool]) -> Any:
    """A user's own `module:attribute`; `fits` tells which attributes of the module will do."""
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise UnknownNameError(f"{what} {name!r} is not of the form module:{noun}")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, something that it imports is not
        raise UnknownNameError(f"{what} {name!r}: no module {module!r}; is its folder on PYTHONPATH?") from error
    value = getattr(found, attribute, None)
    if not fits(value):
        public = [key for key, value in vars(found).items() if fits(value) and not key.startswith("_")]
        raise unknown(f"{noun} of module {module!r}", attribute, public)
    return value


def import_function(name: str, what: str) -> Callable[..., Any]:
    """A user's own `module:function`."""
    return import_attribute(name, what, "function", callable)  # type: ignore[no-any-return]


class OwnFunctionError(FedauxError):
    """A user's own function that failed; its own error is the cause."""


@contextmanager
def own_function(what: str, name: str) -> Iterator[None]:
    """Around a call of `name`: what goes wrong within a user's own function is said to be theirs."""
    try:
        yield
    except (FedauxError, OSError, ImportError):
        raise  # they say enough themselves
    except Exception as error:
        if ":" not in name:
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename}, line {where.lineno}"
        raise OwnFunctionError(f"{what} {name!r} failed: {type(error).__name__}: {error} ({place}).") from error

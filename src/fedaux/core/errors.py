"""User-facing errors and their exit codes; look-up of names and of
`module:function`.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import ModuleType
from typing import Any

from fedaux.core import here


class Exit(IntEnum):
    """Exit codes of the command line."""

    # the check ran and failed: an audit with a violation, a site with problems
    NEGATIVE = 1
    USAGE = 2  # unknown command or option
    SETTINGS = 3  # invalid configuration
    DATA = 4  # missing or malformed data
    FOLDER = 5  # a folder without a run, with another run, or with a damaged one
    MISSING = 6  # an optional package is not installed
    CLIENTS = 7  # too few clients answered
    DIVERGED = 8  # training produced NaN or infinity
    DISK = 9  # disk full or not writable
    PRIVACY = 10  # the privacy budget would be exceeded
    BUG = 70
    STOPPED = 130


class FedauxError(Exception):
    """An error the user can act on: the command line prints its message and exits with
    `code`. All others are bugs.
    """

    code = Exit.DATA


class ArgumentError(FedauxError, ValueError):
    """Arguments or options of a command that do not fit together."""

    code = Exit.USAGE


class UnknownNameError(FedauxError, ValueError):
    """A name that is not among the allowed ones."""

    code = Exit.SETTINGS


class SettingsError(FedauxError, ValueError):
    """A node, a run or an app lacks settings that it needs."""

    code = Exit.SETTINGS


class MissingPackageError(FedauxError, ImportError):
    """An optional package is not installed. The message has the command that installs
    it.
    """

    code = Exit.MISSING


def install_command(extra: str) -> str:
    """How to install an extra: no package index has fedaux yet, so a checkout does."""
    return f"pip install -e '.[{extra}]' in the checkout of fedaux (docs/install.md)"


_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def exit_code(error: BaseException) -> Exit:
    """Return the exit code of a program that ends with this error."""
    if isinstance(error, FedauxError):
        return error.code
    if isinstance(error, ImportError):
        return Exit.MISSING
    if isinstance(error, OSError):
        if isinstance(error, PermissionError) or error.errno in _DISK_ERRNOS:
            return Exit.DISK
        return Exit.DATA
    if isinstance(error, ValueError | OverflowError):
        return Exit.DATA
    return Exit.BUG


def unknown_name(what: str, name: str, allowed: Iterable[str]) -> UnknownNameError:
    """Make an error with the allowed names and the closest one: `raise
    unknown_name("norm", kind, NORMS)`.
    """
    names = list(allowed)
    closest = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {closest[0]!r}?)" if closest else ""
    return UnknownNameError(
        f"Cannot use the {what} {name!r}: it is unknown{hint}. Choose from "
        f"{', '.join(names) or 'none at all'}."
    )


def import_attribute(
    name: str, what: str, noun: str, valid: Callable[[Any], bool]
) -> Any:
    """Import a user's `module:attribute`, or find an object of this session
    (`core.here`); raise unless `valid`.
    """
    if name.startswith(here.PREFIX):
        value = here.find(name)
        if not valid(value):
            raise UnknownNameError(
                f"Cannot find {what} {name!r}: it is an object of a Python session, "
                "and this process has none of that name. Call fedaux.run again with "
                "the same objects and folder, which continues the run, and whose "
                "result has save(FOLDER) for the model and write_report(), or put it "
                "into a module and name it module:name."
            )
        return value
    module_name, _, attribute = name.partition(":")
    identifiers = [*module_name.split("."), attribute]
    if not all(word.isidentifier() for word in identifiers):
        raise UnknownNameError(
            f"Cannot find {what} {name!r}: it is not of the form module:{noun}. "
            "Correct the name."
        )
    module = _import_module(module_name, f"{what} {name!r}")
    value = getattr(module, attribute, None)
    if not valid(value):
        public = [
            key
            for key, candidate in vars(module).items()
            if valid(candidate) and not key.startswith("_")
        ]
        raise unknown_name(f"{noun} of module {module_name!r}", attribute, public)
    return value


def _import_module(name: str, wanted: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, but something that it imports does not
        raise UnknownNameError(
            f"Cannot find {wanted}: there is no module {name!r}. Put its folder on "
            "PYTHONPATH, or correct the name."
        ) from error


def import_function(name: str, what: str) -> Callable[..., Any]:
    """Import a user's `module:function`."""
    function: Callable[..., Any] = import_attribute(name, what, "function", callable)
    return function


class UserCodeError(FedauxError):
    """A `module:function` of the user's raised an error, which is the cause of this
    one.
    """


@contextmanager
def user_code(what: str, name: str) -> Iterator[None]:
    """Turn exceptions of a user's `module:function` called inside into a
    `UserCodeError` with file and line.
    """
    try:
        yield
    except (FedauxError, OSError, ImportError):
        raise  # already clear to the user
    except Exception as error:
        if ":" not in name:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}, line {frame.lineno}"
        raise UserCodeError(
            f"Cannot use {what} {name!r}: it failed with {type(error).__name__}: "
            f"{str(error).rstrip('.')}. Correct {place}."
        ) from error

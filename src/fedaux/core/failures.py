"""Orders without a valid reply: why a client refused, and what the server makes
of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from fedaux.core.errors import Exit, FedauxError

T = TypeVar("T")


class OrderError(FedauxError, ValueError):
    """The client's own settings do not allow the order."""

    code = Exit.PRIVACY


class Refusal(StrEnum):
    """Why a client refused an order. Only this category leaves the client. The details
    stay in its own log.
    """

    BUDGET = "budget"
    ORDER = "order"
    SETTINGS = "settings"
    FAILED = "failed"
    APPROVAL = "approval"
    QUOTA = "quota"  # in the client's place, by the server's link

    @property
    def description(self) -> str:
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    Refusal.BUDGET: "its privacy budget does not allow it",
    Refusal.ORDER: "the order does not fit the client's settings",
    Refusal.SETTINGS: "the client's settings are invalid",
    Refusal.FAILED: "it failed, and the reason is in the client's log",
    Refusal.APPROVAL: "its owner has not approved it, and `fedaux site pending` at the "
    "site has what to decide",
    Refusal.QUOTA: "its reply was larger than its order allows, too slow, or could "
    "not be read",
}


NO_ANSWER = "no-answer"  # a site is gone, or too late
INVALID = "invalid"  # a reply that is not used


@dataclass(frozen=True)
class Failure:
    """A client without a valid reply. The round continues without its contribution."""

    client: str
    reason: str
    # or NO_ANSWER, or the client's own `Refusal`: few of them, to be counted
    kind: str = INVALID


def attempt(work: Callable[..., T], *arguments: Any) -> T | None:
    """Return what `work` returns, or None if it raises: for code that may fail in any
    way, and whose failure someone else will notice or name.
    """
    try:
        return work(*arguments)
    except Exception:
        return None

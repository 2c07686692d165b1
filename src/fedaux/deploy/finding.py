"""One line of `fedaux deploy check`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckResult:
    """ok is None where it could not be found out."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""

"""One line of `fedaux deploy check`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckResult:
    """`ok` is None where the answer is not known."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""

"""Where things go, for pictures of any kind."""

from __future__ import annotations


def spread_out(ends: list[tuple[float, str, str]], gap: float) -> list[tuple[float, str, str]]:
    """Move labels at (height, label, colour) up just enough that none covers another."""
    placed: list[tuple[float, str, str]] = []
    for height, label, colour in sorted(ends):
        floor = placed[-1][0] + gap if placed else 0.0
        placed.append((max(height, floor), label, colour))
    return placed

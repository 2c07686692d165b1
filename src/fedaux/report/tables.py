"""The figures of several runs side by side: last round, mean of the last five, maximum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Row = tuple[str, str, str, str]
HEADER: Row = ("method", "last round", "mean of last 5", "best round (for reference)")


def comparison(curves: Mapping[str, NDArray[np.float64]]) -> list[Row]:
    """One row per method from its curves, (seeds, rounds), in per cent; ± over seeds where there are several."""
    return [
        (label, _percent(values[:, -1]), _percent(values[:, -5:].mean(axis=1)), _percent(values.max(axis=1)))
        for label, values in curves.items()
    ]


def markdown(rows: list[Row]) -> str:
    lines = [HEADER, ("---",) * len(HEADER), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _percent(values: NDArray[np.float64]) -> str:
    spread = f" ± {100 * values.std():.1f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.1f}{spread}"

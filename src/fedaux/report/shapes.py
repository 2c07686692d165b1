"""Charts of shares and counts: discs, bars, squares, one stacked bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.report.svg import CHARACTER, WIDE, Chart, circle, line, rect, shorten, text, text_width


@dataclass(frozen=True)
class Part:
    """A piece of a stacked bar."""

    label: str
    value: float
    tone: str


def bubbles(counts: NDArray[np.int64], clients: Sequence[str], classes: Sequence[str], *, width: float = WIDE) -> Chart:
    """A disc for each client (column) and class (row); its area is the number of records."""
    names, left = _shorten(classes, 0.3 * width)
    cell = min(46.0, max(4.0, (width - left - 12) / max(len(clients), 1)))
    row, head = min(30.0, max(12.0, 560 / max(len(classes), 1))), 18.0
    end, foot = left + cell * len(clients), head + row * len(classes)
    body = [text(0, 12, "class", "label")]
    for j, name in enumerate(names):
        at = head + row * (j + 0.5)
        body += [line(left, at, end, at, "grid"), text(left - 6, at + 4, name, "tick", "end")]
    largest, radius = max(int(counts.max()), 1), min(cell, row) * 0.52
    for i, j in zip(*np.nonzero(counts), strict=True):
        title = f"{clients[i]}: {counts[i, j]} × {classes[j]}"
        size = max(1.2, radius * float(np.sqrt(counts[i, j] / largest)))
        body.append(circle(left + cell * (i + 0.5), head + row * (j + 0.5), size, "disc t0", title))
    every = max(1, int(np.ceil(3 * CHARACTER / cell)))
    body += [text(left + cell * (i + 0.5), foot + 14, str(i), "tick", "middle") for i in range(0, len(clients), every)]
    body.append(text((left + end) / 2, foot + 30, "client", "label", "middle"))
    return Chart(end + 12, foot + 34, "".join(body))


def bars(
    rows: Sequence[tuple[str, float, str]],
    tone: str = "t0",
    tones: Mapping[str, str] | None = None,
    *,
    width: float = WIDE,
) -> Chart:
    """Horizontal bars: (label, value between 0 and 1, text); `tones` by label."""
    left, right = 12 + text_width(label for label, _, _ in rows), 10 + text_width(words for _, _, words in rows)
    above = left > 0.4 * width  # long labels have a line of their own
    left, step, shift = (0.0, 38, 16) if above else (left, 22, 0)
    body, across = [], width - left - right
    for i, (label, value, words) in enumerate(rows):
        at, length = i * step + 4 + shift, across * min(max(value, 0.0), 1.0)
        body.append(text(0, at - 4, label, "tick") if above else text(left - 6, at + 12, label, "tick", "end"))
        body.append(rect(left, at, across, 15, "rail"))
        body.append(rect(left, at, length, 15, (tones or {}).get(label, tone)))
        body.append(text(width - right + 6, at + 12, words, "tick"))
    return Chart(width, step * len(rows) + 6, "".join(body))


def heat(
    table: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    row_title: str = "",
    column_title: str = "",
    *,
    width: float = WIDE,
) -> Chart:
    """Shares between 0 and 1 as squares, in per cent where numbers fit; NaN, which nobody measured, is a dash."""
    names, left = _shorten([*rows, row_title], 0.34 * width)
    upright = text_width(columns) <= 30
    others, slanted = _shorten(columns, 0.34 * width)
    cell = min(54.0, max(4.0, (width - left - (0 if upright else 0.6 * slanted)) / max(len(columns), 1)))
    head = 18 + (14 if upright else 0.66 * slanted)
    body = [text(left, 12, f"{column_title} →", "label") if column_title else ""]
    body.append(text(left - 6, head - 6, f"{row_title} ↓", "label", "end") if row_title else "")
    for i, name in enumerate(rows):
        if cell >= 11:
            body.append(text(left - 6, head + cell * (i + 0.5) + 4, names[i], "tick", "end"))
        for j, other in enumerate(columns):
            value = float(table[i, j])
            at, share = (left + cell * j, head + cell * i), 0.0 if np.isnan(value) else value
            said = "not measured" if np.isnan(value) else f"{100 * value:.1f} %"
            body.append(rect(*at, cell - 1, cell - 1, "heat", f"{name} → {other}: {said}", share))
            if cell >= 24:
                kind = "cell dark" if share > 0.55 else "cell" if share >= 0.005 else "cell none"
                words = "–" if np.isnan(value) else f"{100 * value:.0f}"
                body.append(text(at[0] + cell / 2, at[1] + cell / 2 + 4, words, kind, "middle"))
    for j, name in enumerate(others if cell >= 11 else ()):
        x = left + cell * (j + 0.5)
        if upright:
            body.append(text(x, head - 6, name, "tick", "middle"))
        else:
            body.append(f'<g transform="translate({x:.1f} {head - 6:.1f}) rotate(-40)">{text(0, 0, name, "tick")}</g>')
    right = left + cell * len(columns) + (0 if upright else 0.6 * slanted)
    return Chart(right, head + cell * len(rows) + 4, "".join(body))


def stack(parts: Sequence[Part], total: str, *, width: float = WIDE) -> Chart:
    """One stacked bar, with its total; the page shows the legend."""
    whole, at, body = sum(part.value for part in parts) or 1.0, 0.0, list[str]()
    across = width - text_width([total]) - 12
    for part in parts:
        size = across * part.value / whole
        body.append(rect(at, 4, size, 22, part.tone, f"{part.label}: {100 * part.value / whole:.0f} %"))
        at += size
    body.append(text(across + 8, 20, total, "tick"))
    return Chart(width, 30, "".join(body))


def _shorten(names: Sequence[str], room: float) -> tuple[list[str], float]:
    """Names that fit into so many pixels, and how many they need."""
    short = [shorten(name, room - 12) for name in names]
    return short, 12 + text_width(short)

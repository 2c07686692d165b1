"""Charts as SVG, for a page or as a file of their own. On a page they take its colours, light or dark.

Drawn here because a chart library would put megabytes of script into every report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.core.io import write_atomically

_WIDTH = 820
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 110, 30, 36


def read_style() -> str:
    return (files("fedaux.report") / "charts.css").read_text("utf-8")


@dataclass(frozen=True)
class Chart:
    """`body` is SVG, `width` × `height` in its own units."""

    width: float
    height: float
    body: str = field(repr=False)

    def inline(self) -> str:
        """For a page that has the style."""
        box = f"0 0 {self.width:.0f} {self.height:.0f}"
        return f'<svg viewBox="{box}" style="max-width:{self.width:.0f}px" role="img">{self.body}</svg>'

    def save(self, path: Path, title: str) -> None:
        """As a file of its own."""
        write_atomically(path, self.standalone(title).encode())

    def standalone(self, title: str = "") -> str:
        """On white, below a title. Colours are plain: not all programs know variables of CSS."""
        style = read_style()
        for name, colour in re.findall(r"(--\w+): ([^;]+);", style):
            style = style.replace(f"var({name})", colour)
        width, height, head = round(self.width) + 32, round(self.height) + 32, 28 if title else 0
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + head}" '
            f'viewBox="-16 {-16 - head} {width} {height + head}"><style>{style}</style>'
            f'<rect class="paper" x="-16" y="{-16 - head}" width="{width}" height="{height + head}"/>'
            f"{_text(0, -24, title, 'title', 'start')}{self.body}</svg>"
        )

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.standalone()


@dataclass(frozen=True)
class Line:
    """A curve; `spread`, where there is one, is drawn as a band of ± that much."""

    label: str
    values: Sequence[float]
    tone: str = "t0"  # a class of the style sheet
    dotted: bool = False
    spread: Sequence[float] = ()


@dataclass(frozen=True)
class Part:
    """A piece of a stacked bar."""

    label: str
    value: float
    tone: str


def line_chart(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    top: float | None = None,
    percent: bool = False,
    x_values: Sequence[str] = (),
) -> Chart:
    """Curves over rounds 1, 2, … or other evenly spaced values, each with its name at its end."""
    width, height = _WIDTH, 340
    count = max(len(line.values) for line in lines)
    x_values = x_values or [str(i + 1) for i in range(count)]
    top = top or _nice(max(v + s for line in lines for v, s in zip(line.values, _spread(line), strict=True)))
    bottom = min(0.0, min(min(line.values) for line in lines))
    bottom = -_nice(-bottom) if bottom < 0 else 0.0
    across = width - _LEFT - _RIGHT

    def x(i: float) -> float:
        return _LEFT + (across * i / (count - 1) if count > 1 else across / 2)

    def y(value: float) -> float:
        return _TOP + (height - _TOP - _BOTTOM) * (1 - min(max((value - bottom) / (top - bottom), 0), 1))

    body = []
    for step in range(5):
        value = bottom + (top - bottom) * step / 4
        text = f"{100 * value:.0f} %" if percent else f"{value:g}"
        body.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        body.append(_text(_LEFT - 6, y(value) + 4, text, "tick", "end"))
    ticks = sorted({round(i) for i in np.linspace(0, count - 1, min(count, 10))})
    body += [_text(x(i), height - _BOTTOM + 16, x_values[i], "tick", "middle") for i in ticks]
    body.append(_text(_LEFT + across / 2, height - 4, x_label, "label", "middle"))
    body.append(_text(0, 12, y_label, "label", "start"))
    for line in lines:
        points = [(x(i), y(value)) for i, value in enumerate(line.values)]
        if any(line.spread):
            up = [(x(i), y(v + s)) for i, (v, s) in enumerate(zip(line.values, line.spread, strict=True))]
            down = [(x(i), y(v - s)) for i, (v, s) in enumerate(zip(line.values, line.spread, strict=True))]
            body.append(f'<polygon class="band {line.tone}" points="{_points(up + down[::-1])}"/>')
        dotted = " dotted" if line.dotted else ""
        body.append(f'<polyline class="curve {line.tone}{dotted}" points="{_points(points)}"/>')
        for i, (a, b) in enumerate(points):
            shown = f"{100 * line.values[i]:.1f} %" if percent else f"{line.values[i]:.3g}"
            body.append(
                _dot(a, b, 9 if len(points) > 1 else 4, f"{line.label}, {x_label} {x_values[i]}: {shown}", line.tone)
            )
    ends = [(y(line.values[-1]) / height, line.label, line.tone) for line in lines]
    for place, label, tone in spread_out(ends, gap=15 / height):
        body.append(_text(width - _RIGHT + 6, place * height + 4, label, f"end {tone}", "start"))
    return Chart(width, height, "".join(body))


def bubbles(counts: NDArray[np.int64], clients: Sequence[str], classes: Sequence[str]) -> Chart:
    """A disc for each client (column) and class (row); its area is the number of records."""
    cell = min(46.0, max(9.0, (_WIDTH - 60) / max(len(clients), 1)))
    left, row = 12 + 7 * max(map(len, classes), default=1), min(30.0, max(11.0, 560 / max(len(classes), 1)))
    width, height = left + cell * len(clients) + 12, row * len(classes) + 34
    body = []
    for j, name in enumerate(classes):
        at = row * (j + 0.5)
        body.append(f'<line class="grid" x1="{left}" x2="{width - 12}" y1="{at:.1f}" y2="{at:.1f}"/>')
        if row >= 11:
            body.append(_text(left - 6, at + 4, name, "tick", "end"))
    largest, radius = max(int(counts.max()), 1), min(cell, row) * 0.52
    for i, j in zip(*np.nonzero(counts), strict=True):
        title = f"{clients[i]}: {counts[i, j]} × {classes[j]}"
        size = max(1.2, radius * float(np.sqrt(counts[i, j] / largest)))
        body.append(_dot(left + cell * (i + 0.5), row * (j + 0.5), size, title, f"disc t{j % 10}"))
    ticks = range(0, len(clients), max(1, -(-len(clients) // 40)))
    body += [_text(left + cell * (i + 0.5), height - 18, str(i), "tick", "middle") for i in ticks]
    body.append(_text(left + cell * len(clients) / 2, height - 3, "client", "label", "middle"))
    return Chart(width, height, "".join(body))


def bars(rows: Sequence[tuple[str, float, str]], tone: str = "t0", tones: Mapping[str, str] | None = None) -> Chart:
    """Horizontal bars: (label, value between 0 and 1, text); `tones` by label."""
    left, width, step = 14 + 6.6 * max((len(label) for label, _, _ in rows), default=1), _WIDTH, 22
    body = []
    for i, (label, value, text) in enumerate(rows):
        at, length = i * step + 4, (width - left - 90) * min(max(value, 0.0), 1.0)
        body.append(_text(left - 6, at + 12, label, "tick", "end"))
        body.append(f'<rect class="rail" x="{left:.0f}" y="{at}" width="{width - left - 90:.0f}" height="15"/>')
        own = (tones or {}).get(label, tone)
        body.append(f'<rect class="{own}" x="{left:.0f}" y="{at}" width="{length:.1f}" height="15"/>')
        body.append(_text(width - 84, at + 12, text, "tick", "start"))
    return Chart(width, step * len(rows) + 6, "".join(body))


def heat(table: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str]) -> Chart:
    """A matrix of shares between 0 and 1 as squares; numbers are per cent and appear where they fit."""
    cell = min(54.0, max(6.0, 640 / max(len(columns), 1)))
    left, head = 12 + 7 * max(map(len, rows), default=1), 12 + (5.5 * max(map(len, columns), default=1))
    body, fits = [], cell >= 24
    for i, name in enumerate(rows):
        if cell >= 11:
            body.append(_text(left - 6, head + cell * (i + 0.5) + 4, name, "tick", "end"))
        for j, other in enumerate(columns):
            value = float(table[i, j])
            at = f'x="{left + cell * j:.1f}" y="{head + cell * i:.1f}" width="{cell - 1:.1f}" height="{cell - 1:.1f}"'
            title = f"<title>{escape(name)} → {escape(other)}: {100 * value:.1f} %</title>"
            body.append(f'<rect class="heat" style="fill-opacity:{value:.3f}" {at}>{title}</rect>')
            if fits and value >= 0.005:
                kind, centre = "cell dark" if value > 0.55 else "cell", head + cell * (i + 0.5) + 4
                body.append(_text(left + cell * (j + 0.5), centre, f"{100 * value:.0f}", kind, "middle"))
    if cell >= 11:
        for j, name in enumerate(columns):
            place = f"{left + cell * (j + 0.5):.1f} {head - 6:.1f}"
            body.append(f'<g transform="translate({place}) rotate(-40)">{_text(0, 0, name, "tick", "start")}</g>')
    width = left + cell * len(columns) + 5.5 * max(map(len, columns), default=1)
    return Chart(width, head + cell * len(rows) + 4, "".join(body))


def stack(parts: Sequence[Part], total: str) -> Chart:
    """One stacked bar, with its total; the page shows the legend."""
    width, whole, at, body = _WIDTH, sum(part.value for part in parts) or 1.0, 0.0, list[str]()
    for part in parts:
        size = (width - 100) * part.value / whole
        title = f"<title>{escape(part.label)}: {100 * part.value / whole:.0f} %</title>"
        body.append(f'<rect class="{part.tone}" x="{at:.1f}" y="4" width="{size:.1f}" height="22">{title}</rect>')
        at += size
    body.append(_text(width - 92, 20, total, "tick", "start"))
    return Chart(width, 30, "".join(body))


def spread_out(ends: list[tuple[float, str, str]], gap: float) -> list[tuple[float, str, str]]:
    """Move labels at (height, label, tone) up just enough that none covers another."""
    placed: list[tuple[float, str, str]] = []
    for height, label, tone in sorted(ends):
        floor = placed[-1][0] + gap if placed else 0.0
        placed.append((max(height, floor), label, tone))
    return placed


def _nice(value: float) -> float:
    """A round number that is not smaller and has round quarters: 1, 1.2, 1.6, 2, … times a power of ten."""
    power = 10.0 ** np.floor(np.log10(max(value, 1e-9)))
    return float(
        power * next(step for step in (1, 1.2, 1.6, 2, 2.4, 4, 6, 8, 10) if step * power >= value * (1 - 1e-9))
    )


def _spread(line: Line) -> Sequence[float]:
    return line.spread or [0.0] * len(line.values)


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _dot(x: float, y: float, radius: float, title: str, kind: str) -> str:
    hidden = "" if kind.startswith("disc") or radius < 9 else "touch "
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"'
    return f'<circle class="{hidden}{kind}" {place}><title>{escape(title)}</title></circle>'


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'

"""Curves over rounds: each named at its end, distinct where they coincide, bands where they can be told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedaux.report.svg import WIDE, Chart, circle, line, points, shorten, text, text_width

_LEFT, _TOP, _BOTTOM = 46.0, 26.0, 38.0
_LEAD = 20.0  # from the end of a curve to its name
_ROW = 15.0  # between two names
_DASH = 14.0  # of curves that lie on each other
MAX_CURVES = 12  # of one chart
_SHOWN_BANDS = 2  # more of them cover each other: then a band appears when its curve is pointed at


@dataclass(frozen=True)
class Line:
    """A curve; `spread`, where there is one, is drawn as a band of ± that much."""

    label: str
    values: Sequence[float]
    tone: str = "t0"  # classes of the style sheet
    thin: bool = False
    spread: Sequence[float] = ()


@dataclass(frozen=True)
class _Frame:
    """From rounds and values to places."""

    left: float
    right: float
    upper: float
    lower: float
    count: int
    bottom: float
    top: float

    def x(self, i: float) -> float:
        across = self.right - self.left
        return self.left + (across * i / (self.count - 1) if self.count > 1 else across / 2)

    def y(self, value: float) -> float:
        share = min(max((value - self.bottom) / (self.top - self.bottom), 0.0), 1.0)
        return self.lower - (self.lower - self.upper) * share

    def places(self, values: Sequence[float]) -> list[tuple[float, float]]:
        return [(self.x(i), self.y(value)) for i, value in enumerate(values)]


def line_chart(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    width: float = WIDE,
    height: float = 340.0,
    top: float | None = None,
    percent: bool = False,
    x_values: Sequence[str] = (),
    behind: Sequence[Sequence[float]] = (),
    room: float = 0.0,
) -> Chart:
    """Curves over rounds 1, 2, … or other evenly spaced values; `behind` are others, in grey and without a name.

    Names have at least `room` pixels, so that several charts have frames of one width.
    """
    count = max(len(each.values) for each in lines)
    x_values = x_values or [str(i + 1) for i in range(count)]
    room = max(room, text_width(each.label for each in lines))
    beside = room + _LEAD + 6 <= 0.36 * width
    bottom = min(0.0, *(min(each.values) for each in lines))
    frame = _Frame(
        _LEFT,
        width - (room + _LEAD + 6 if beside and room else 12),
        _TOP,
        height - _BOTTOM,
        count,
        -nice(-bottom) if bottom < 0 else 0.0,
        top or nice(max(v + s for each in lines for v, s in zip(each.values, _spread(each), strict=True))),
    )
    show = (lambda value: f"{100 * value:.1f} %") if percent else (lambda value: f"{value:.3g}")
    body = _axes(frame, x_label, y_label, x_values, percent)
    body += [f'<polyline class="others" points="{points(frame.places(values))}"/>' for values in behind]
    dashes = interleave([each.values for each in lines], 0.012 * (frame.top - frame.bottom))
    for each, dash in zip(lines, dashes, strict=True):
        body.append(_series(frame, each, dash, len(lines), lambda i: f"{x_label} {x_values[i]}", show))
    if beside:
        return Chart(width, height, "".join([*body, *_names(frame, lines)]))
    ranked = sorted(lines, key=lambda each: -each.values[-1])
    for row, each in enumerate(ranked, 1):
        at = height + row * (_ROW + 2)
        lead = points([(_LEFT - 40, at - 4), (_LEFT - 20, at - 4)])
        body.append(f'<polyline class="lead {each.tone}" points="{lead}"/>')
        body.append(text(_LEFT - 14, at, shorten(each.label, width - _LEFT + 14), f"name {each.tone}"))
    return Chart(width, height + (len(ranked) + 1) * (_ROW + 2), "".join(body))


def _axes(frame: _Frame, x_label: str, y_label: str, x_values: Sequence[str], percent: bool) -> list[str]:
    body = []
    for step in range(5):
        value = frame.bottom + (frame.top - frame.bottom) * step / 4
        at = frame.y(value)
        body.append(line(frame.left, at, frame.right, at, "grid"))
        body.append(text(frame.left - 6, at + 4, f"{100 * value:.0f} %" if percent else f"{value:g}", "tick", "end"))
    most = max(2, int((frame.right - frame.left) / (text_width(x_values) + 18)))
    body += [text(frame.x(i), frame.lower + 16, x_values[i], "tick", "middle") for i in ticks(frame.count, most)]
    body.append(text((frame.left + frame.right) / 2, frame.lower + 33, x_label, "label", "middle"))
    return [*body, text(0, 12, y_label, "label")]


def _series(
    frame: _Frame, each: Line, dash: tuple[int, int], count: int, when: Callable[[int], str], show: Callable[..., str]
) -> str:
    """Band, curve, markers, and a place to point at for every value."""
    body, places = [], frame.places(each.values)
    if any(each.spread):
        up = frame.places([v + s for v, s in zip(each.values, each.spread, strict=True)])
        down = frame.places([v - s for v, s in zip(each.values, each.spread, strict=True)])
        quiet = " quiet" if count > _SHOWN_BANDS else ""
        body.append(f'<polygon class="band{quiet}" points="{points(up + down[::-1])}"/>')
    turn, turns = dash
    style = ""
    if turns > 1:
        style = f' stroke-dasharray="{_DASH:g} {_DASH * (turns - 1):g}" stroke-dashoffset="{_DASH * (turns - turn):g}"'
    thin = " thin" if each.thin else ""
    body.append(f'<polyline class="curve {each.tone}{thin}"{style} points="{points(places)}"/>')
    if "m" in each.tone or len(places) == 1:
        every = max(1, len(places) // 10)
        body += [circle(x, y, 4, each.tone) for x, y in places[::every]]
    for i, (x, y) in enumerate(places):
        body.append(circle(x, y, 9, "touch", f"{each.label}, {when(i)}: {show(each.values[i])}"))
    return f'<g class="series {each.tone}">{"".join(body)}</g>'


def _names(frame: _Frame, lines: Sequence[Line]) -> list[str]:
    """At the ends of the curves, each led to by a stroke in its colour."""
    body, labelled = [], [each for each in lines if each.label]
    ends = [frame.y(each.values[-1]) for each in labelled]
    for each, end, place in zip(labelled, ends, spread_out(ends, _ROW, 8.0, frame.lower), strict=True):
        at = frame.x(len(each.values) - 1), frame.right + _LEAD - 4
        lead = points([(at[0], end), (frame.right + 4, end), (frame.right + 10, place), (at[1], place)])
        body.append(f'<polyline class="lead {each.tone}" points="{lead}"/>')
        body.append(text(frame.right + _LEAD, place + 4, each.label, f"name {each.tone}"))
    return body


def interleave(curves: Sequence[Sequence[float]], near: float) -> list[tuple[int, int]]:
    """(turn, turns) of each curve: those that lie on each other take turns in being seen; (0, 1) is alone."""
    groups: list[list[int]] = []
    for i, curve in enumerate(curves):
        mates = (group for group in groups if _coincide(curves[group[0]], curve, near))
        home = next(mates, None)
        if home is None:
            groups.append([i])
        else:
            home.append(i)
    turns = {i: (turn, len(group)) for group in groups for turn, i in enumerate(group)}
    return [turns[i] for i in range(len(curves))]


def _coincide(one: Sequence[float], other: Sequence[float], near: float) -> bool:
    return len(one) == len(other) > 1 and float(np.mean(np.abs(np.subtract(one, other)))) < near


def spread_out(places: Sequence[float], gap: float, first: float, last: float) -> list[float]:
    """The nearest places from `first` to `last` that keep a distance of `gap`, in the order given.

    Isotonic regression: names that would cover each other become a block, centred on where they wanted to be.
    """
    order = np.argsort(places, kind="stable")
    blocks: list[tuple[float, int]] = []  # sum of wishes for the first of a block, and its size
    for i in order:
        total, size = float(places[i]), 1
        while blocks and total / size < blocks[-1][0] / blocks[-1][1] + gap * blocks[-1][1]:
            before, count = blocks.pop()
            total, size = before + total - gap * count * size, count + size
        blocks.append((total, size))
    flat = np.array([total / size + gap * k for total, size in blocks for k in range(size)])
    steps = gap * np.arange(len(places))
    flat = np.minimum(flat, last - steps[::-1])
    flat = np.maximum(flat, first + steps)  # if all do not fit, the last are below
    found = np.empty(len(places))
    found[order] = flat
    return [float(place) for place in found]


def ticks(count: int, most: int) -> list[int]:
    """Evenly spaced: all of them, or the first and every 2nd, 5th, 10th, … as counted from 1."""
    sizes = (step * 10**power for power in range(7) for step in (1, 2, 5))
    step = next(size for size in sizes if count <= size * most)
    chosen = list(range(step - 1, count, step))
    return chosen if step == 1 else ([0] if step > 2 or count < 4 else []) + chosen


def nice(value: float) -> float:
    """A round number that is not smaller and has round quarters: 1, 1.2, 1.6, 2, … times a power of ten."""
    power = 10.0 ** np.floor(np.log10(max(value, 1e-9)))
    return float(
        power * next(step for step in (1, 1.2, 1.6, 2, 2.4, 4, 6, 8, 10) if step * power >= value * (1 - 1e-9))
    )


def _spread(each: Line) -> Sequence[float]:
    return each.spread or [0.0] * len(each.values)

"""Charts of curves, counts and shares.

A chart draws itself once, as SVG, because a chart library would put megabytes of script
into every report. On a page it takes the page's ink and paper, light or dark. As a file
for papers and slides the same drawing is converted to PDF or PNG by CairoSVG. The
colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedaux.core.errors import Exit, FedauxError, MissingPackageError, install_command
from fedaux.core.io import write_atomically
from fedaux.report.svg import (
    CHARACTER,
    PAPER_WIDTH,
    WIDE,
    Drawing,
    Svg,
    fit,
    shorten,
    text_width,
)

FIGURE_FORMATS = ("svg", "pdf", "png")
MAX_CURVES = 12  # of one chart
_PIXELS_PER_INCH = 96  # of SVG
_PNG_SCALE = 2.0  # about 200 dots an inch in print

# Around the frame of curves.
_LEFT = 46.0
_TOP = 26.0
_BOTTOM = 38.0
_EDGE = 12.0  # at the right, where no names stand

_LEAD = 20.0  # from the end of a curve to its name
_NAME_HEIGHT = 15.0  # between two names
_LEGEND_HEIGHT = 17.0  # of a line of the legend below the frame
_STEPS = 4  # of the vertical axis
# more of them cover each other: then a band appears when its curve is pointed at
_SHOWN_BANDS = 2


class FigureError(FedauxError):
    """The format of a figure is not supported."""

    code = Exit.USAGE


class Chart(ABC):
    """A chart that draws itself as SVG, `paper_width` wide where it is converted."""

    paper_width: ClassVar[float] = PAPER_WIDTH

    @abstractmethod
    def svg(self, width: float = WIDE) -> Svg:
        """Draw the chart for a page, at most `width` wide."""

    def save(self, path: str | Path, title: str = "") -> None:
        """In the format that the name of the file ends with. Papers have captions: only
        SVG has the title.
        """
        path = Path(path)
        suffix = path.suffix.removeprefix(".")
        if suffix not in FIGURE_FORMATS:
            raise FigureError(
                f"Cannot draw {path.name}: figures are {', '.join(FIGURE_FORMATS)}, "
                f"not {suffix!r}. Choose one of these endings."
            )
        write_atomically(path, self._content(suffix, title))

    def _content(self, suffix: str, title: str) -> bytes:
        if suffix == "svg":
            return self.svg().standalone(title).encode()
        return _convert(self.svg(self.paper_width), suffix)

    def _repr_svg_(self) -> str:
        """Draw the chart for a notebook."""
        return self.svg().standalone()


def _convert(drawing: Svg, suffix: str) -> bytes:
    """The same drawing is the same file: a PDF has no date."""
    try:
        from cairocffi import PDF_METADATA_CREATE_DATE
        from cairosvg.parser import Tree
        from cairosvg.surface import PDFSurface, PNGSurface
    except ImportError as error:
        raise MissingPackageError(
            f"Cannot draw {suffix} files: CairoSVG is not installed. Run "
            f"{install_command('figures')}."
        ) from error
    except OSError as error:
        raise MissingPackageError(
            f"Cannot draw {suffix} files: the library cairo was not found. Install it "
            "with `apt install libcairo2` on Debian and Ubuntu, or with `brew install "
            "cairo` on macOS."
        ) from error
    document = Tree(bytestring=drawing.standalone().encode())
    file = io.BytesIO()
    if suffix == "png":
        surface = PNGSurface(document, file, _PIXELS_PER_INCH, scale=_PNG_SCALE)
    else:
        surface = PDFSurface(document, file, _PIXELS_PER_INCH)
        surface.cairo.set_metadata(PDF_METADATA_CREATE_DATE, "")
    surface.finish()
    return file.getvalue()


@dataclass(frozen=True)
class Line:
    """A curve. `spread`, where there is one, is drawn as a band of ± that much."""

    label: str
    values: Sequence[float]
    tone: str = "t0"  # classes of the style sheet
    thin: bool = False
    spread: Sequence[float] = ()
    best: bool = False  # its name is bold
    offset: int = 0  # places of the horizontal axis before its first value
    level: bool = False  # its one value is a dashed line across the whole frame

    @property
    def band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Its lower and upper edge."""
        values = np.array(self.values)
        spread = np.array(self.spread or [0.0] * len(self.values))
        return values - spread, values + spread

    @property
    def curve_kind(self) -> str:
        """Classes of its curve in the style sheet."""
        if self.level:
            return f"level {self.tone}"
        kind = f"curve {self.tone}"
        if self.best:
            return f"{kind} best"
        return f"{kind} thin" if self.thin else kind

    @property
    def lead_kind(self) -> str:
        """Classes of the stroke next to its name."""
        kind = f"lead {self.tone}"
        return f"{kind} level" if self.level else kind

    @property
    def name_kind(self) -> str:
        """Classes of its name in the style sheet."""
        kind = f"name {self.tone}"
        return f"{kind} best" if self.best else kind


@dataclass(frozen=True)
class _Frame:
    """Maps rounds and values to positions."""

    left: float
    right: float
    upper: float
    lower: float
    count: int
    bottom: float
    top: float

    def x(self, i: float) -> float:
        across = self.right - self.left
        if self.count == 1:
            return self.left + across / 2
        return self.left + across * i / (self.count - 1)

    def y(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        inside = min(max(share, 0.0), 1.0)
        return self.lower - (self.lower - self.upper) * inside

    def places(
        self, values: Iterable[float], offset: int = 0
    ) -> list[tuple[float, float]]:
        return [(self.x(i), self.y(value)) for i, value in enumerate(values, offset)]


@dataclass(frozen=True)
class LineChart(Chart):
    """Curves over rounds 1, 2, … or other evenly spaced values, each named at its
    end.
    """

    lines: Sequence[Line]
    x_label: str
    y_label: str
    # of the vertical axis; by default zero and a round number above all values
    bottom: float | None = None
    top: float | None = None
    percent: bool = False
    x_values: Sequence[str] = ()
    height: float = 340.0

    @property
    def count(self) -> int:
        return max(line.offset + len(line.values) for line in self.lines)

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of the vertical axis, which include zero unless `bottom` is
        given.
        """
        lowest = min(min(line.values) for line in self.lines)
        highest = max(float(line.band[1].max()) for line in self.lines)
        bottom = -nice(-lowest) if lowest < 0 else 0.0
        if self.bottom is not None:
            bottom = self.bottom
        return bottom, self.top or nice(highest)

    def svg(self, width: float = WIDE) -> Svg:
        longest_name = text_width(line.label for line in self.lines)
        names_width = longest_name + _LEAD + 6
        # where names would take too much from the curves, they stand below
        beside = names_width <= 0.36 * width
        margin = names_width if beside and longest_name else _EDGE
        frame = _Frame(
            _LEFT,
            width - margin,
            _TOP,
            self.height - _BOTTOM,
            self.count,
            *self.limits,
        )
        drawing = Drawing()
        self._draw_axes(drawing, frame)
        for line in self.lines:
            self._draw_series(drawing, frame, line)
        if beside:
            self._draw_names(drawing, frame)
            return drawing.sized(width, self.height)
        self._draw_legend(drawing, width)
        named = [line for line in self.lines if line.label]
        legend_height = (len(named) + 1) * _LEGEND_HEIGHT
        return drawing.sized(width, self.height + legend_height)

    def _draw_axes(self, drawing: Drawing, frame: _Frame) -> None:
        for step in range(_STEPS + 1):
            value = frame.bottom + (frame.top - frame.bottom) * step / _STEPS
            y = frame.y(value)
            words = f"{100 * value:.0f} %" if self.percent else f"{value:g}"
            drawing.grid_line(frame.left, y, frame.right, y)
            drawing.text(frame.left - 6, y + 4, words, "tick", "end")
        x_values = self.x_values or [str(i + 1) for i in range(frame.count)]
        tick_width = text_width(x_values) + 18
        most = max(2, int((frame.right - frame.left) / tick_width))
        for i in ticks(frame.count, most):
            y = frame.lower + 16
            drawing.text(frame.x(i), y, x_values[i], "tick", "middle")
        middle = (frame.left + frame.right) / 2
        drawing.text(middle, frame.lower + 33, self.x_label, "label", "middle")
        drawing.text(0, 12, self.y_label, "label")

    def _draw_series(self, drawing: Drawing, frame: _Frame, line: Line) -> None:
        """Band, curve, markers, and a place to point at for every value."""
        series = Drawing()
        if any(line.spread):
            low, high = (frame.places(edge.tolist(), line.offset) for edge in line.band)
            quiet = len(self.lines) > _SHOWN_BANDS
            series.polygon(high + low[::-1], "band quiet" if quiet else "band")
        places = frame.places(line.values, line.offset)
        if line.level:
            y = frame.y(line.values[-1])
            places = [(frame.x(i), y) for i in range(frame.count)]
            series.polyline([(frame.left, y), (frame.right, y)], line.curve_kind)
        else:
            series.polyline(places, line.curve_kind)
        has_markers = "m" in line.tone or len(places) == 1
        if has_markers and not line.level:
            every = max(1, len(places) // 10)
            for x, y in places[::every]:
                series.circle(x, y, 4, line.tone)
        for i, (x, y) in enumerate(places):
            series.circle(x, y, 9, "touch", self._value_title(line, i))
        drawing.group(series, f"series {line.tone}")

    def _value_title(self, line: Line, i: int) -> str:
        value = line.values[-1] if line.level else line.values[i]
        words = f"{100 * value:.1f} %" if self.percent else f"{value:.3g}"
        if line.level:
            return f"{line.label}: {words}"
        place = line.offset + i
        x_value = self.x_values[place] if self.x_values else place + 1
        return f"{line.label}, {self.x_label} {x_value}: {words}"

    def _draw_names(self, drawing: Drawing, frame: _Frame) -> None:
        """At the ends of the curves, each led to by a stroke in its colour."""
        named = [line for line in self.lines if line.label]
        ends = [frame.y(line.values[-1]) for line in named]
        name_places = spread_out(ends, _NAME_HEIGHT, 8.0, frame.lower)
        stop = frame.right + _LEAD - 4
        for line, end, place in zip(named, ends, name_places, strict=True):
            last = frame.x(line.offset + len(line.values) - 1)
            lead = [
                (frame.right if line.level else last, end),
                (frame.right + 4, end),
                (frame.right + 10, place),
                (stop, place),
            ]
            drawing.polyline(lead, f"lead {line.tone}")
            drawing.text(stop + 4, place + 4, line.label, line.name_kind)

    def _draw_legend(self, drawing: Drawing, width: float) -> None:
        """Below the frame, in the order in which the curves end."""
        left = _LEFT - 14
        named = [line for line in self.lines if line.label]
        ranked = sorted(named, key=lambda line: -line.values[-1])
        for row, line in enumerate(ranked, 1):
            y = self.height + row * _LEGEND_HEIGHT
            dash = [(_LEFT - 40, y - 4), (_LEFT - 20, y - 4)]
            drawing.polyline(dash, line.lead_kind)
            name = shorten(line.label, width - left)
            drawing.text(left, y, name, line.name_kind)


@dataclass(frozen=True, eq=False)
class Bubbles(Chart):
    """A disc for each client (column) and class (row). Its area is the number of
    records.
    """

    counts: NDArray[np.int64]
    clients: Sequence[str]
    classes: Sequence[str]

    def svg(self, width: float = WIDE) -> Svg:
        names, left = fit(self.classes, 0.3 * width)
        room = (width - left - 12) / max(len(self.clients), 1)
        marks = self._client_marks()
        column = min(max(46.0, text_width(marks) + 8), max(4.0, room))
        if text_width(marks) > column:  # names that do not fit
            marks = [str(i) for i in range(len(self.clients))]
        row = min(30.0, max(12.0, 560 / max(len(self.classes), 1)))
        head = 18.0
        right = left + column * len(self.clients)
        foot = head + row * len(self.classes)
        drawing = Drawing()
        drawing.text(0, 12, "class", "label")
        for j, name in enumerate(names):
            y = head + row * (j + 0.5)
            drawing.grid_line(left, y, right, y)
            drawing.text(left - 6, y + 4, name, "tick", "end")
        most = max(int(self.counts.max()), 1)
        largest_radius = min(column, row) * 0.52
        for i, j in zip(*np.nonzero(self.counts), strict=True):
            count = self.counts[i, j]
            title = f"{self.clients[i]}: {count} × {self.classes[j]}"
            radius = max(1.2, largest_radius * float(np.sqrt(count / most)))
            x = left + column * (i + 0.5)
            y = head + row * (j + 0.5)
            drawing.circle(x, y, radius, "disc t0", title)
        # numbers of clients need three characters
        every = max(1, int(np.ceil(3 * CHARACTER / column)))
        if text_width(marks) > 3 * CHARACTER:  # names that fit
            every = 1
        for i in range(0, len(self.clients), every):
            x = left + column * (i + 0.5)
            drawing.text(x, foot + 14, marks[i], "tick", "middle")
        drawing.text((left + right) / 2, foot + 30, "client", "label", "middle")
        return drawing.sized(right + 12, foot + 34)

    def _client_marks(self) -> list[str]:
        """Numbers for simulated clients, the names of sites."""
        if all(re.fullmatch(r"client-\d+", name) for name in self.clients):
            return [str(i) for i in range(len(self.clients))]
        return list(self.clients)


@dataclass(frozen=True)
class Bars(Chart):
    """Horizontal bars: (label, value between 0 and 1, text). `tones` by label, the
    others have `tone`. `intervals`, where there are any, are lines on the bars.
    """

    rows: Sequence[tuple[str, float, str]]
    tone: str = "t0"
    tones: Mapping[str, str] = field(default_factory=dict)
    intervals: Sequence[tuple[float, float]] = ()

    def svg(self, width: float = WIDE) -> Svg:
        labels_width = 12 + text_width(label for label, _, _ in self.rows)
        words_width = 10 + text_width(words for _, _, words in self.rows)
        # long labels have a line of their own
        above = labels_width > 0.4 * width
        left = 0.0 if above else labels_width
        row_height = 38 if above else 22
        shift = 16 if above else 0
        across = width - left - words_width
        drawing = Drawing()
        for i, (label, value, words) in enumerate(self.rows):
            y = i * row_height + 4 + shift
            if above:
                drawing.text(0, y - 4, label, "tick")
            else:
                drawing.text(left - 6, y + 12, label, "tick", "end")
            length = across * min(max(value, 0.0), 1.0)
            drawing.rect(left, y, across, 15, "rail")
            drawing.rect(left, y, length, 15, self.tones.get(label, self.tone))
            if self.intervals:
                low, high = (across * min(end, 1.0) for end in self.intervals[i])
                drawing.rect(left + low, y + 6, high - low, 3, "interval")
            drawing.text(width - words_width + 6, y + 12, words, "tick")
        return drawing.sized(width, row_height * len(self.rows) + 6)


@dataclass(frozen=True, eq=False)
class Heat(Chart):
    """Shares between 0 and 1 as squares, in per cent where numbers fit; NaN, not
    measured, is a dash.
    """

    table: NDArray[np.float64]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str = ""
    column_title: str = ""

    # narrower, the squares of fifty classes would be too small for their names
    paper_width: ClassVar[float] = WIDE

    def svg(self, width: float = WIDE) -> Svg:
        row_names, left = fit([*self.rows, self.row_title], 0.34 * width)
        column_names, slanted = fit(self.columns, 0.34 * width)
        upright = text_width(self.columns) <= 30
        # names at 40° reach beyond the last column and above the first row
        beyond = 0 if upright else 0.6 * slanted
        head = 18 + (14 if upright else 0.66 * slanted)
        cell = (width - left - beyond) / max(len(self.columns), 1)
        cell = min(54.0, max(4.0, cell))
        drawing = Drawing()
        if self.column_title:
            drawing.text(left, 12, f"{self.column_title} →", "label")
        if self.row_title:
            drawing.text(left - 6, head - 6, f"{self.row_title} ↓", "label", "end")
        has_names = cell >= 11
        for i in range(len(self.rows)):
            y = head + cell * i
            if has_names:
                middle = head + cell * (i + 0.5)
                drawing.text(left - 6, middle + 4, row_names[i], "tick", "end")
            for j in range(len(self.columns)):
                self._draw_cell(drawing, i, j, left + cell * j, y, cell)
        if has_names:
            for j, name in enumerate(column_names):
                x = left + cell * (j + 0.5)
                if upright:
                    drawing.placed_text(x, head - 6, name, "middle")
                else:
                    drawing.placed_text(x, head - 6, name, "start", turn=-40)
        right = left + cell * len(self.columns) + beyond
        return drawing.sized(right, head + cell * len(self.rows) + 4)

    def _draw_cell(
        self, drawing: Drawing, i: int, j: int, x: float, y: float, cell: float
    ) -> None:
        value = float(self.table[i, j])
        measured = not np.isnan(value)
        share = value if measured else 0.0
        words = f"{100 * value:.1f} %" if measured else "not measured"
        title = f"{self.rows[i]} → {self.columns[j]}: {words}"
        drawing.rect(x, y, cell - 1, cell - 1, "heat", title, share)
        if cell < 24:  # no room for a number
            return
        number = f"{100 * value:.0f}" if measured else "–"
        kind = _number_kind(share)
        drawing.text(x + cell / 2, y + cell / 2 + 4, number, kind, "middle")


def _number_kind(share: float) -> str:
    """White on a dark square, pale for what is rounded to zero."""
    if share > 0.55:
        return "cell dark"
    return "cell" if share >= 0.005 else "cell none"


def spread_out(
    places: Sequence[float], gap: float, first: float, last: float
) -> list[float]:
    """Places near those given, from `first` to `last` and at least `gap` apart, in the
    same order.

    The mean of two ways: all that are too near move down, or up.
    """
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    # without the gaps, places only have to be in order
    wishes = np.array(places, dtype=float)[order] - steps
    down = np.maximum.accumulate(wishes)
    up = np.minimum.accumulate(wishes[::-1])[::-1]
    middle = (down + up) / 2 + steps
    above_last = np.minimum(middle, last - steps[::-1])
    moved = np.empty(len(places))
    # if all do not fit, the last are below
    moved[order] = np.maximum(above_last, first + steps)
    return [float(place) for place in moved]


def ticks(count: int, most: int) -> list[int]:
    """Evenly spaced: all of them, or the first and every 2nd, 5th, 10th, … as counted
    from 1.
    """
    sizes = (step * 10**power for power in range(7) for step in (1, 2, 5))
    step = next(size for size in sizes if count <= size * most)
    chosen = list(range(step - 1, count, step))
    if step > 2 or (step == 2 and count < 4):
        return [0, *chosen]
    return chosen


def nice(value: float) -> float:
    """A round number that is not smaller and has round quarters: 1, 1.2, 1.6, 2, …
    times a power of ten.
    """
    power = 10.0 ** np.floor(np.log10(max(value, 1e-9)))
    steps = (1, 1.2, 1.6, 2, 2.4, 4, 6, 8, 10)
    # a value that is round but for the last bit stays as it is
    enough = value * (1 - 1e-9)
    step = next(step for step in steps if step * power >= enough)
    return float(power * step)

"""Charts of curves, counts and shares.

On a page a chart is SVG, written here because a chart library would put megabytes of
script into every report; it takes the page's ink and paper, light or dark. As a file it
is the same SVG, or PDF and PNG drawn by matplotlib for papers and slides, in the same
colours: those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaux.core.errors import Exit, FedauxError, MissingPackageError
from fedaux.core.io import write_atomically
from fedaux.report.svg import (
    CHARACTER,
    WIDE,
    Svg,
    circle,
    fit,
    line,
    points,
    polyline,
    read_colours,
    rect,
    shorten,
    text,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "pdf", "png")
MAX_CURVES = 12  # of one chart
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
)
_LEFT, _TOP, _BOTTOM = 46.0, 26.0, 38.0  # around the frame of curves
_LEAD, _ROW = 20.0, 15.0  # from the end of a curve to its name, and between two names
# characters of a long name in a legend, before it continues on the next line
_COLUMNS = 70
# more of them cover each other: then a band appears when its curve is pointed at
_SHOWN_BANDS = 2


class FigureError(FedauxError):
    """The format of a figure is not supported."""

    code = Exit.USAGE


class Chart(ABC):
    """A chart that draws itself as SVG and on the axes of matplotlib."""

    @abstractmethod
    def svg(self, width: float = WIDE) -> Svg:
        """Draw the chart for a page, at most `width` wide."""

    @abstractmethod
    def plot(self, axes: Axes, colours: Mapping[str, str]) -> None:
        """Draw the chart on empty axes of `size`, in colours by the names of the style
        sheet.
        """

    @property
    @abstractmethod
    def size(self) -> tuple[float, float]:
        """Width and height in a paper, in inches."""

    def save(self, path: str | Path, title: str = "") -> None:
        """In the format that the name of the file ends with. Papers have captions: only
        SVG has the title.
        """
        path = Path(path)
        suffix = path.suffix.removeprefix(".")
        if suffix not in FORMATS:
            raise FigureError(
                f"{path.name}: figures are {', '.join(FORMATS)}, not {suffix!r}."
            )
        write_atomically(
            path,
            self.svg().standalone(title).encode()
            if suffix == "svg"
            else self._draw(suffix),
        )

    def _draw(self, suffix: str) -> bytes:
        try:
            import matplotlib as mpl
            from matplotlib.figure import Figure
        except ImportError as error:
            text = f"{suffix} files are drawn by matplotlib: pip install 'fedaux[figures]'."
            raise MissingPackageError(text) from error
        colours = read_colours()
        style: Any = {
            "pdf.fonttype": 42,  # fonts are embedded, as publishers ask
            "font.size": 9,
            "text.parse_math": False,  # names of classes and clients are no formulas
            "axes.spines.top": False,
            "axes.spines.right": False,
            **dict.fromkeys(
                (
                    "axes.labelcolor",
                    "text.color",
                    "xtick.labelcolor",
                    "ytick.labelcolor",
                ),
                colours["ink"],
            ),
            **dict.fromkeys(
                ("axes.edgecolor", "xtick.color", "ytick.color"), colours["soft"]
            ),
            **{
                "grid.color": colours["faint"],
                "axes.axisbelow": True,
                "legend.frameon": False,
            },
        }
        with mpl.rc_context(style):
            figure = Figure(figsize=self.size, layout="constrained")
            self.plot(figure.add_subplot(), colours)
            file = io.BytesIO()
            # the same chart is the same file
            metadata = {"CreationDate": None} if suffix == "pdf" else None
            figure.savefig(
                file,
                format=suffix,
                dpi=200,
                metadata=metadata,
                bbox_inches="tight",
                pad_inches=0.04,
            )
        return file.getvalue()

    def _repr_svg_(self) -> str:
        """Draw the chart for a notebook."""
        return self.svg().standalone()


@dataclass(frozen=True)
class Line:
    """A curve; `spread`, where there is one, is drawn as a band of ± that much."""

    label: str
    values: Sequence[float]
    tone: str = "t0"  # classes of the style sheet
    thin: bool = False
    spread: Sequence[float] = ()
    best: bool = False  # its name is bold

    @property
    def band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Its lower and upper edge."""
        values, spread = (
            np.array(self.values),
            np.array(self.spread or [0.0] * len(self.values)),
        )
        return values - spread, values + spread


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
        return self.left + (
            across * i / (self.count - 1) if self.count > 1 else across / 2
        )

    def y(self, value: float) -> float:
        share = min(max((value - self.bottom) / (self.top - self.bottom), 0.0), 1.0)
        return self.lower - (self.lower - self.upper) * share

    def places(self, values: Iterable[float]) -> list[tuple[float, float]]:
        return [(self.x(i), self.y(value)) for i, value in enumerate(values)]


@dataclass(frozen=True)
class LineChart(Chart):
    """Curves over rounds 1, 2, … or other evenly spaced values, each named at its
    end.
    """

    lines: Sequence[Line]
    x_label: str
    y_label: str
    # of the vertical axis; by default a round number above all values
    top: float | None = None
    percent: bool = False
    x_values: Sequence[str] = ()
    height: float = 340.0

    @property
    def count(self) -> int:
        return max(len(each.values) for each in self.lines)

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of the vertical axis, which include zero."""
        lowest = min(min(each.values) for each in self.lines)
        highest = max(float(each.band[1].max()) for each in self.lines)
        return -nice(-lowest) if lowest < 0 else 0.0, self.top or nice(highest)

    def svg(self, width: float = WIDE) -> Svg:
        room = text_width(each.label for each in self.lines)
        beside = room + _LEAD + 6 <= 0.36 * width
        right = width - (room + _LEAD + 6 if beside and room else 12)
        frame = _Frame(
            _LEFT, right, _TOP, self.height - _BOTTOM, self.count, *self.limits
        )
        body = [*self._axes(frame), *(self._series(frame, each) for each in self.lines)]
        if beside:
            return Svg(width, self.height, "".join([*body, *self._names(frame)]))
        for row, each in enumerate(self._ranked(), 1):
            at = self.height + row * (_ROW + 2)
            body.append(
                polyline(
                    [(_LEFT - 40, at - 4), (_LEFT - 20, at - 4)], f"lead {each.tone}"
                )
            )
            body.append(
                text(
                    _LEFT - 14,
                    at,
                    shorten(each.label, width - _LEFT + 14),
                    _name_kind(each),
                )
            )
        return Svg(
            width, self.height + (len(self.lines) + 1) * (_ROW + 2), "".join(body)
        )

    def _ranked(self) -> list[Line]:
        return sorted(self.lines, key=lambda each: -each.values[-1])

    def _axes(self, frame: _Frame) -> list[str]:
        body, x_values = [], self.x_values or [str(i + 1) for i in range(frame.count)]
        for step in range(5):
            value = frame.bottom + (frame.top - frame.bottom) * step / 4
            at, words = (
                frame.y(value),
                f"{100 * value:.0f} %" if self.percent else f"{value:g}",
            )
            body += [
                line(frame.left, at, frame.right, at),
                text(frame.left - 6, at + 4, words, "tick", "end"),
            ]
        most = max(2, int((frame.right - frame.left) / (text_width(x_values) + 18)))
        body += [
            text(frame.x(i), frame.lower + 16, x_values[i], "tick", "middle")
            for i in ticks(frame.count, most)
        ]
        body.append(
            text(
                (frame.left + frame.right) / 2,
                frame.lower + 33,
                self.x_label,
                "label",
                "middle",
            )
        )
        return [*body, text(0, 12, self.y_label, "label")]

    def _series(self, frame: _Frame, each: Line) -> str:
        """Band, curve, markers, and a place to point at for every value."""
        body, places = [], frame.places(each.values)
        if any(each.spread):
            low, high = (frame.places(edge.tolist()) for edge in each.band)
            quiet = " quiet" if len(self.lines) > _SHOWN_BANDS else ""
            body.append(
                f'<polygon class="band{quiet}" points="{points(high + low[::-1])}"/>'
            )
        body.append(
            polyline(
                places,
                (
                    "curve "
                    f"{each.tone}{' best' if each.best else ' thin' if each.thin else ''}"
                ),
            )
        )
        if "m" in each.tone or len(places) == 1:
            body += [
                circle(x, y, 4, each.tone)
                for x, y in places[:: max(1, len(places) // 10)]
            ]
        for i, (x, y) in enumerate(places):
            value = (
                f"{100 * each.values[i]:.1f} %"
                if self.percent
                else f"{each.values[i]:.3g}"
            )
            at = self.x_values[i] if self.x_values else i + 1
            body.append(
                circle(x, y, 9, "touch", f"{each.label}, {self.x_label} {at}: {value}")
            )
        return f'<g class="series {each.tone}">{"".join(body)}</g>'

    def _names(self, frame: _Frame) -> list[str]:
        """At the ends of the curves, each led to by a stroke in its colour."""
        body, named = [], [each for each in self.lines if each.label]
        ends = [frame.y(each.values[-1]) for each in named]
        for each, end, place in zip(
            named, ends, spread_out(ends, _ROW, 8.0, frame.lower), strict=True
        ):
            start, stop = frame.x(len(each.values) - 1), frame.right + _LEAD - 4
            way = [
                (start, end),
                (frame.right + 4, end),
                (frame.right + 10, place),
                (stop, place),
            ]
            body += [
                polyline(way, f"lead {each.tone}"),
                text(stop + 4, place + 4, each.label, _name_kind(each)),
            ]
        return body

    @property
    def size(self) -> tuple[float, float]:
        rows = sum(1 + len(each.label) // _COLUMNS for each in self.lines)
        return 6.3, 3.0 + 0.19 * rows if self._wordy else max(3.0, 0.19 * rows + 0.9)

    @property
    def _wordy(self) -> bool:
        """Whether names are too long to stand beside the curves in a paper."""
        return max(len(each.label) for each in self.lines) > 28

    def plot(self, axes: Axes, colours: Mapping[str, str]) -> None:
        from matplotlib.ticker import PercentFormatter

        several = len(self.lines) > 1
        for each in self._ranked():  # the legend is in the order of the ends
            x = np.arange(1, len(each.values) + 1)
            name, _, marked = each.tone.partition(" ")
            dashes = _DASHES[int(name[1])] if name[1:].isdigit() and several else "-"
            width = 2.4 if each.best and several else 1.0 if each.thin else 1.6
            marker = "o" if marked or len(x) == 1 else None
            axes.plot(
                x,
                each.values,
                color=colours[name],
                ls=dashes,
                lw=width,
                marker=marker,
                ms=4,
                label=fill(each.label, _COLUMNS),
            )
            if any(each.spread):
                axes.fill_between(
                    x,
                    *each.band,
                    color=colours[name],
                    alpha=0.2 if len(self.lines) <= _SHOWN_BANDS else 0.1,
                    linewidth=0,
                )
        axes.set(xlabel=self.x_label, ylabel=self.y_label, ylim=self.limits)
        axes.grid(axis="y")
        shown = range(self.count) if self.x_values else ticks(self.count, 10)
        axes.set_xticks(
            [i + 1 for i in shown], self.x_values or [str(i + 1) for i in shown]
        )
        if self.percent:
            axes.yaxis.set_major_formatter(
                PercentFormatter(1.0, symbol=" %", decimals=0)
            )
        if several:
            place: Any = (
                ("upper left", (0, -0.17))
                if self._wordy
                else ("center left", (1.01, 0.5))
            )
            axes.legend(loc=place[0], bbox_to_anchor=place[1], handlelength=2.8)


@dataclass(frozen=True, eq=False)
class Bubbles(Chart):
    """A disc for each client (column) and class (row); its area is the number of
    records.
    """

    counts: NDArray[np.int64]
    clients: Sequence[str]
    classes: Sequence[str]

    def svg(self, width: float = WIDE) -> Svg:
        names, left = fit(self.classes, 0.3 * width)
        cell = min(46.0, max(4.0, (width - left - 12) / max(len(self.clients), 1)))
        row, head = min(30.0, max(12.0, 560 / max(len(self.classes), 1))), 18.0
        end, foot = left + cell * len(self.clients), head + row * len(self.classes)
        body = [text(0, 12, "class", "label")]
        for j, name in enumerate(names):
            at = head + row * (j + 0.5)
            body += [
                line(left, at, end, at),
                text(left - 6, at + 4, name, "tick", "end"),
            ]
        largest, radius = max(int(self.counts.max()), 1), min(cell, row) * 0.52
        for i, j in zip(*np.nonzero(self.counts), strict=True):
            title = f"{self.clients[i]}: {self.counts[i, j]} × {self.classes[j]}"
            size = max(1.2, radius * float(np.sqrt(self.counts[i, j] / largest)))
            body.append(
                circle(
                    left + cell * (i + 0.5),
                    head + row * (j + 0.5),
                    size,
                    "disc t0",
                    title,
                )
            )
        for i in range(
            0, len(self.clients), max(1, int(np.ceil(3 * CHARACTER / cell)))
        ):
            body.append(
                text(left + cell * (i + 0.5), foot + 14, str(i), "tick", "middle")
            )
        body.append(text((left + end) / 2, foot + 30, "client", "label", "middle"))
        return Svg(end + 12, foot + 34, "".join(body))

    @property
    def _cell(self) -> float:
        """Inches from one disc to the next."""
        return min(
            0.36, 5.4 / max(len(self.clients), 1), 7.0 / max(len(self.classes), 1)
        )

    @property
    def size(self) -> tuple[float, float]:
        longest = max((len(name) for name in self.classes), default=0)
        across = self._cell * len(self.clients) + 0.07 * min(longest, 40) + 0.6
        return max(2.2, across), max(1.6, self._cell * len(self.classes) + 0.7)

    def plot(self, axes: Axes, colours: Mapping[str, str]) -> None:
        i, j = np.nonzero(self.counts)
        largest = (0.92 * 72 * self._cell) ** 2  # points
        sizes = np.maximum(
            largest * self.counts[i, j] / max(int(self.counts.max()), 1), 1.5
        )
        axes.scatter(i, j, s=sizes, color=colours["t0"], linewidth=0)
        axes.set(xlabel="client", ylabel="class", xlim=(-0.6, len(self.clients) - 0.4))
        axes.set(ylim=(len(self.classes) - 0.4, -0.6), aspect="equal")
        axes.set_yticks(
            range(len(self.classes)),
            [name[:40] for name in self.classes],
            size=_fitting(self._cell),
        )
        places = range(0, len(self.clients), int(np.ceil(0.3 / self._cell)))
        # else a number says as much
        named = not all(name.startswith("client-") for name in self.clients)
        axes.set_xticks(
            places,
            [self.clients[i][:40] if named else str(i) for i in places],
            rotation=60 * named,
        )
        axes.tick_params(length=0)
        axes.grid(axis="y")


@dataclass(frozen=True)
class Bars(Chart):
    """Horizontal bars: (label, value between 0 and 1, text); `tones` by label, the
    others have `tone`.
    """

    rows: Sequence[tuple[str, float, str]]
    tone: str = "t0"
    tones: Mapping[str, str] = field(default_factory=dict)

    def svg(self, width: float = WIDE) -> Svg:
        left = 12 + text_width(label for label, _, _ in self.rows)
        right = 10 + text_width(words for _, _, words in self.rows)
        above = left > 0.4 * width  # long labels have a line of their own
        left, step, shift = (0.0, 38, 16) if above else (left, 22, 0)
        body, across = [], width - left - right
        for i, (label, value, words) in enumerate(self.rows):
            at, length = i * step + 4 + shift, across * min(max(value, 0.0), 1.0)
            body.append(
                text(0, at - 4, label, "tick")
                if above
                else text(left - 6, at + 12, label, "tick", "end")
            )
            body.append(rect(left, at, across, 15, "rail"))
            body.append(rect(left, at, length, 15, self.tones.get(label, self.tone)))
            body.append(text(width - right + 6, at + 12, words, "tick"))
        return Svg(width, step * len(self.rows) + 6, "".join(body))

    @property
    def size(self) -> tuple[float, float]:
        return 6.3, 0.24 * len(self.rows) + 0.6

    def plot(self, axes: Axes, colours: Mapping[str, str]) -> None:
        from matplotlib.ticker import PercentFormatter

        tones = [
            self.tones.get(label, self.tone).split()[0] for label, _, _ in self.rows
        ]
        places = range(len(self.rows))
        drawn = axes.barh(
            places,
            [value for _, value, _ in self.rows],
            0.7,
            color=[colours[one] for one in tones],
        )
        axes.bar_label(drawn, [words for _, _, words in self.rows], padding=4)
        axes.set_yticks(places, [label for label, _, _ in self.rows])
        axes.set(xlim=(0, 1), ylim=(len(self.rows) - 0.4, -0.6))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
        axes.tick_params(axis="y", length=0)


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

    def svg(self, width: float = WIDE) -> Svg:
        names, left = fit([*self.rows, self.row_title], 0.34 * width)
        upright = text_width(self.columns) <= 30
        others, slanted = fit(self.columns, 0.34 * width)
        cell = min(
            54.0,
            max(
                4.0,
                (width - left - (0 if upright else 0.6 * slanted))
                / max(len(self.columns), 1),
            ),
        )
        head = 18 + (14 if upright else 0.66 * slanted)
        body = [
            text(left, 12, f"{self.column_title} →", "label")
            if self.column_title
            else ""
        ]
        body.append(
            text(left - 6, head - 6, f"{self.row_title} ↓", "label", "end")
            if self.row_title
            else ""
        )
        for i, name in enumerate(self.rows):
            if cell >= 11:
                body.append(
                    text(left - 6, head + cell * (i + 0.5) + 4, names[i], "tick", "end")
                )
            for j, other in enumerate(self.columns):
                value = float(self.table[i, j])
                at, share = (
                    (left + cell * j, head + cell * i),
                    0.0 if np.isnan(value) else value,
                )
                said = "not measured" if np.isnan(value) else f"{100 * value:.1f} %"
                body.append(
                    rect(
                        *at,
                        cell - 1,
                        cell - 1,
                        "heat",
                        f"{name} → {other}: {said}",
                        share,
                    )
                )
                if cell >= 24:
                    kind = (
                        "cell dark"
                        if share > 0.55
                        else "cell"
                        if share >= 0.005
                        else "cell none"
                    )
                    body.append(
                        text(
                            at[0] + cell / 2,
                            at[1] + cell / 2 + 4,
                            _whole(value),
                            kind,
                            "middle",
                        )
                    )
        for j, name in enumerate(others if cell >= 11 else ()):
            x, words = (
                left + cell * (j + 0.5),
                text(0, 0, name, "tick", "middle" if upright else "start"),
            )
            turn = "" if upright else " rotate(-40)"
            body.append(
                f'<g transform="translate({x:.1f} {head - 6:.1f}){turn}">{words}</g>'
            )
        right = left + cell * len(self.columns) + (0 if upright else 0.6 * slanted)
        return Svg(right, head + cell * len(self.rows) + 4, "".join(body))

    @property
    def _cell(self) -> float:
        """Inches of a square."""
        return min(0.4, 5.6 / max(len(self.columns), 1))

    @property
    def size(self) -> tuple[float, float]:
        names = (
            0.07 * min(max(map(len, each), default=0), 40)
            for each in (self.rows, self.columns)
        )
        left, above = (each + 0.5 for each in names)
        return self._cell * len(self.columns) + left + 0.9, self._cell * len(
            self.rows
        ) + min(above, 2.0)

    def plot(self, axes: Axes, colours: Mapping[str, str]) -> None:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.ticker import PercentFormatter

        shades = LinearSegmentedColormap.from_list("shares", ["#ffffff", colours["t0"]])
        image = axes.imshow(self.table, cmap=shades, vmin=0, vmax=1)
        size = _fitting(self._cell)
        tilt: dict[str, Any] = {
            "rotation": 40,
            "ha": "right",
            "rotation_mode": "anchor",
        }
        turned = tilt if max(map(len, self.columns), default=0) > 3 else {}
        axes.set_xticks(
            range(len(self.columns)),
            [name[:40] for name in self.columns],
            size=size,
            **turned,
        )
        axes.set_yticks(
            range(len(self.rows)), [name[:40] for name in self.rows], size=size
        )
        axes.set(xlabel=self.column_title, ylabel=self.row_title)
        axes.tick_params(length=0)
        if self._cell < 0.2:  # no room for numbers
            percent = PercentFormatter(1.0, symbol=" %")
            axes.figure.colorbar(
                image, ax=axes, fraction=0.04, pad=0.02, format=percent
            )
            return
        for (i, j), value in np.ndenumerate(self.table):
            ink = (
                "#ffffff"
                if value > 0.55
                else colours["ink" if value >= 0.005 else "soft"]
            )
            axes.text(
                j,
                i,
                _whole(value),
                color=ink,
                ha="center",
                va="center",
                size=min(8, 26 * self._cell),
            )


def spread_out(
    places: Sequence[float], gap: float, first: float, last: float
) -> list[float]:
    """Places near those given, from `first` to `last` and at least `gap` apart, in the
    same order.

    The mean of two ways: all that are too near move down, or up.
    """
    order, steps = np.argsort(places, kind="stable"), gap * np.arange(len(places))
    wishes = np.array(places, dtype=float)[order] - steps
    down, up = np.maximum.accumulate(wishes), np.minimum.accumulate(wishes[::-1])[::-1]
    moved = np.minimum((down + up) / 2 + steps, last - steps[::-1])
    found = np.empty(len(places))
    # if all do not fit, the last are below
    found[order] = np.maximum(moved, first + steps)
    return [float(place) for place in found]


def ticks(count: int, most: int) -> list[int]:
    """Evenly spaced: all of them, or the first and every 2nd, 5th, 10th, … as counted
    from 1.
    """
    sizes = (step * 10**power for power in range(7) for step in (1, 2, 5))
    step = next(size for size in sizes if count <= size * most)
    chosen = list(range(step - 1, count, step))
    return chosen if step == 1 else ([0] if step > 2 or count < 4 else []) + chosen


def nice(value: float) -> float:
    """A round number that is not smaller and has round quarters: 1, 1.2, 1.6, 2, …
    times a power of ten.
    """
    power = 10.0 ** np.floor(np.log10(max(value, 1e-9)))
    steps = (1, 1.2, 1.6, 2, 2.4, 4, 6, 8, 10)
    return float(
        power * next(step for step in steps if step * power >= value * (1 - 1e-9))
    )


def _whole(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.0f}"


def _name_kind(each: Line) -> str:
    return f"name {each.tone}{' best' if each.best else ''}"


def _fitting(cell: float) -> float:
    """Return the font size, in points, of a name in a cell of this height in inches."""
    return min(9.0, 64 * cell)

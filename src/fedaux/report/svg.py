"""SVG by hand: a drawing to which elements are added, the style sheet and its palette,
and how much room words need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

# Widths of a chart, in pixels.
WIDE = 820.0  # on a desk
NARROW = 350.0  # on a phone
PAPER_WIDTH = 600.0  # in a PDF or PNG: 6.3 inches, as wide as the text of a paper

# Widths of a character at 12 px, in the widest of the common fonts.
CHARACTER = 7.3
_WIDE_CHARACTER = 8.7
_WIDE_SIGNS = "+=±%mw→"

TONES = 6  # colours next to that of FedAUX
_MARGIN = 16  # around a chart in a file of its own
_TITLE_HEIGHT = 28


def read_style() -> str:
    return (files("fedaux.report") / "charts.css").read_text("utf-8")


def read_colours() -> dict[str, str]:
    """The palette by its names in the style sheet, on white paper."""
    colours: dict[str, str] = {}
    for name, value in re.findall(r"--(\w+): ([^;]+);", read_style()):
        # a value such as var(--ink) names a colour that stands before it
        referred = value.removeprefix("var(--").removesuffix(")")
        colours[name] = colours.get(referred, value)
    return colours


def tone(index: int) -> str:
    """Classes of the style sheet for the n-th of several things: after the last colour,
    the first with a marker.
    """
    cycle, colour = divmod(index, TONES)
    return f"t{colour} m{cycle}" if cycle else f"t{colour}"


@dataclass(frozen=True)
class Svg:
    """`body` is SVG, `width` × `height` in its own units."""

    width: float
    height: float
    body: str = field(repr=False)

    def inline(self, kind: str = "") -> str:
        """Return the drawing for a page that has the style sheet."""
        attribute = f' class="{kind}"' if kind else ""
        box = f"0 0 {self.width:.0f} {self.height:.0f}"
        style = f"max-width:{self.width:.0f}px"
        return (
            f'<svg{attribute} viewBox="{box}" style="{style}" role="img">'
            f"{self.body}</svg>"
        )

    def standalone(self, title: str = "") -> str:
        """On white, below a title. Colours are plain: not all programs know variables
        of CSS.
        """
        style = re.sub(r":root \{[^}]*\}\s*", "", read_style())
        for name, colour in read_colours().items():
            style = style.replace(f"var(--{name})", colour)
        head = _TITLE_HEIGHT if title else 0
        top = -_MARGIN - head
        width = round(self.width) + 2 * _MARGIN
        height = round(self.height) + 2 * _MARGIN + head
        size = f'width="{width}" height="{height}"'
        box = f"{-_MARGIN} {top} {width} {height}"
        paper = f'<rect class="paper" x="{-_MARGIN}" y="{top}" {size}/>'
        words = Drawing()
        words.text(0, -24, title, "title")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{box}">'
            f"<style>{style}</style>{paper}{words.body}{self.body}</svg>"
        )


class Drawing:
    """SVG elements, in the order in which they are drawn. `kind` is a class of the
    style sheet. A `title` appears when you point at the element.
    """

    def __init__(self) -> None:
        self._elements: list[str] = []

    @property
    def body(self) -> str:
        return "".join(self._elements)

    def sized(self, width: float, height: float) -> Svg:
        """Return the finished drawing."""
        return Svg(width, height, self.body)

    def text(
        self, x: float, y: float, words: str, kind: str, anchor: str = "start"
    ) -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self._elements.append(f'<text class="{kind}" {place}>{escape(words)}</text>')

    def placed_text(
        self, x: float, y: float, words: str, anchor: str, turn: float = 0.0
    ) -> None:
        """A label of an axis, turned by some degrees around its place."""
        label = Drawing()
        label.text(0, 0, words, "tick", anchor)
        move = f"translate({x:.1f} {y:.1f})"
        if turn:
            move += f" rotate({turn:g})"
        self._elements.append(f'<g transform="{move}">{label.body}</g>')

    def grid_line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self._elements.append(f'<line class="grid" {ends}/>')

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        title: str = "",
        opacity: float = 1.0,
    ) -> None:
        shade = f' fill-opacity="{opacity:.3f}"' if opacity < 1 else ""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        element = f'<rect class="{kind}"{shade} {place}>{_title(title)}</rect>'
        self._elements.append(element)

    def circle(
        self, x: float, y: float, radius: float, kind: str, title: str = ""
    ) -> None:
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"'
        element = f'<circle class="{kind}" {place}>{_title(title)}</circle>'
        self._elements.append(element)

    def polyline(self, places: Iterable[tuple[float, float]], kind: str) -> None:
        self._elements.append(f'<polyline class="{kind}" points="{_points(places)}"/>')

    def polygon(self, places: Iterable[tuple[float, float]], kind: str) -> None:
        self._elements.append(f'<polygon class="{kind}" points="{_points(places)}"/>')

    def group(self, drawing: Drawing, kind: str) -> None:
        self._elements.append(f'<g class="{kind}">{drawing.body}</g>')


def text_width(words: Iterable[str]) -> float:
    """Return an upper bound on the width of the longest text."""
    widths = (sum(map(_character_width, line)) for line in words)
    return max(widths, default=0.0)


def shorten(words: str, room: float) -> str:
    """Shorten a text so that it fits into this many pixels."""
    if text_width([words]) <= room:
        return words
    while words and text_width([f"{words}…"]) > room:
        words = words[:-1]
    return f"{words}…"


def fit(names: Sequence[str], room: float) -> tuple[list[str], float]:
    """Shorten names to fit into this many pixels; return them and the pixels that they
    need.
    """
    short = [shorten(name, room - 12) for name in names]
    return short, 12 + text_width(short)


def _character_width(character: str) -> float:
    wide = character.isupper() or character in _WIDE_SIGNS
    return _WIDE_CHARACTER if wide else CHARACTER


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""

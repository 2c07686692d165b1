"""SVG by hand: elements, the style sheet and its palette, and how much room words
need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

WIDE, NARROW = 820.0, 350.0  # of a chart on a desk and on a phone, in pixels
# pixels of one at 12 px, in the widest of the common fonts
CHARACTER, _CAPITAL = 7.3, 8.7
TONES = 6  # colours beside that of FedAUX


def read_style() -> str:
    return (files("fedaux.report") / "charts.css").read_text("utf-8")


def read_colours() -> dict[str, str]:
    """The palette by its names in the style sheet, on white paper."""
    colours: dict[str, str] = dict(re.findall(r"--(\w+): ([^;]+);", read_style()))
    return {name: colours.get(value[6:-1], value) for name, value in colours.items()}


def tone(index: int) -> str:
    """Classes of the style sheet for the n-th of several things: after the last colour,
    the first with a marker.
    """
    marker = f" m{index // TONES}" if index >= TONES else ""
    return f"t{index % TONES}{marker}"


@dataclass(frozen=True)
class Svg:
    """`body` is SVG, `width` × `height` in its own units."""

    width: float
    height: float
    body: str = field(repr=False)

    def inline(self, kind: str = "") -> str:
        """Return the drawing for a page that has the style sheet."""
        box, word = (
            f"0 0 {self.width:.0f} {self.height:.0f}",
            f' class="{kind}"' if kind else "",
        )
        return f'<svg{word} viewBox="{box}" style="max-width:{self.width:.0f}px" role="img">{self.body}</svg>'

    def standalone(self, title: str = "") -> str:
        """On white, below a title. Colours are plain: not all programs know variables
        of CSS.
        """
        style = re.sub(r":root \{[^}]*\}\s*", "", read_style())
        for name, colour in read_colours().items():
            style = style.replace(f"var(--{name})", colour)
        width, height, head = (
            round(self.width) + 32,
            round(self.height) + 32,
            28 if title else 0,
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + head}" '
            f'viewBox="-16 {-16 - head} {width} {height + head}"><style>{style}</style>'
            f'<rect class="paper" x="-16" y="{-16 - head}" width="{width}" height="{height + head}"/>'
            f"{text(0, -24, title, 'title')}{self.body}</svg>"
        )


def text_width(words: Iterable[str]) -> float:
    """Return an upper bound on the width of the longest text."""
    wide = "+=±%mw→"
    widths = (
        sum(_CAPITAL if c.isupper() or c in wide else CHARACTER for c in one)
        for one in words
    )
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


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
    )


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    kind: str,
    title: str = "",
    opacity: float = 1.0,
) -> str:
    shade = f' fill-opacity="{opacity:.3f}"' if opacity < 1 else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}"{shade} {place}>{_title(title)}</rect>'


def circle(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{_title(title)}</circle>'


def polyline(pairs: Iterable[tuple[float, float]], kind: str) -> str:
    return f'<polyline class="{kind}" points="{points(pairs)}"/>'


def points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""

"""Parts of the site's pictures: boxes, words and arrows, and charts below one another.

Every picture can be read on light and on dark pages, also where no style sheet reaches
it. Words of a drawn picture are on filled shapes. Charts have their own paper, which is
dark if the reader's system is.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from fedaux.report.charts import Line, LineChart
from fedaux.report.svg import Drawing, read_style

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
RESULTS = DOCS.parent / "studies" / "results"

SERVER, SITE, PROTECTED, GREY = "#2f5d8c", "#7d4a78", "#2e7560", "#4a5466"
ON_SERVER, ON_SITE = "#1f4266", "#5c3358"
INNER = "#ffffff2e"
SPOKEN = '<title id="t">{title}</title>\n  <desc id="d">{described}</desc>'
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"
     role="img" aria-labelledby="t d"
     font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif">
  <!-- Drawn by docs/{script}. -->
  {spoken}
"""
SHAPES = """  <style>
    text { fill: #fff; font-size: 16px; }
    .h { font-size: 18px; font-weight: 600; }
    .m { text-anchor: middle; }
    .s { font-size: 15px; }
    .e { font-size: 14px; text-anchor: end; fill: #d7deea; }
    .line { stroke: #8a94a6; stroke-width: 2.5; fill: none; }
  </style>
  <defs>
    <marker id="a" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="7" markerHeight="7" orient="auto">
      <path d="M0 0 L10 5 L0 10 z" fill="#8a94a6"/>
    </marker>
  </defs>
"""

WIDTH = 400  # of a drawn picture: a phone shows it at 90 %, so text of 16 stays at 14
PHONE = 358  # pixels that a picture has on a screen of 390
MARGIN = 12  # around charts
HEADLINES = 48  # the room of two lines above a chart
LEGEND_LINE = 18


class Panel(NamedTuple):
    """A chart below two lines of words."""

    headline: str
    words: str
    chart: LineChart


def picture(
    title: str,
    described: str,
    size: tuple[float, float],
    shapes: Iterable[str],
    script: str = "pictures.py",
) -> str:
    lines = "".join(f"  {shape}\n" for shape in shapes)
    return f"{_head(title, described, size, script)}{SHAPES}{lines}</svg>\n"


def write_pictures(pictures: Mapping[str, Callable[[], str]]) -> None:
    """Draw the pictures of these names into the site's folder."""
    for name, draw in pictures.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


def charts(
    title: str,
    described: str,
    panels: Sequence[Panel],
    script: str,
    columns: int = 1,
    legend: Sequence[Line] = (),
) -> str:
    """Charts below one another, as wide as a phone and in the report's style. In
    several columns, their lines have no names, and `legend` names them once.
    """
    column = (PHONE - MARGIN) / columns
    bodies: list[str] = []
    top = MARGIN
    for row in range(0, len(panels), columns):
        drawn = [
            panel.chart.svg(column - MARGIN) for panel in panels[row : row + columns]
        ]
        for place, chart in enumerate(drawn):
            panel = panels[row + place]
            left = MARGIN + place * column
            bodies.append(
                f'<g transform="translate({left:g} {top})">'
                f'<text class="title" y="14">{escape(panel.headline)}</text>'
                f'<text class="label" y="32">{escape(panel.words)}</text>'
                f'<g transform="translate(0 {HEADLINES})">{chart.body}</g></g>\n'
            )
        top += HEADLINES + round(max(chart.height for chart in drawn)) + 2 * MARGIN
    for line in legend:
        key = Drawing()
        key.polyline([(MARGIN, top - 4), (MARGIN + 20, top - 4)], line.curve_kind)
        key.text(MARGIN + 28, top, line.label, line.name_kind)
        bodies.append(f"{key.body}\n")
        top += LEGEND_LINE
    size = (PHONE, top if legend else top - MARGIN)
    paper = '<rect class="paper" width="100%" height="100%" rx="9"/>\n'
    head = _head(title, described, size, script)
    return f"{head}{_chart_style()}{paper}{''.join(bodies)}</svg>\n"


def _chart_style() -> str:
    """Colours of the report, on light and on dark paper."""
    page = (files("fedaux.report") / "page.css").read_text("utf-8")
    (dark,) = re.findall(
        r"@media \(prefers-color-scheme: dark\) \{.*?\n\}", page, re.DOTALL
    )
    rules = f"{read_style()}\n{dark}\ntext.title {{ font-size: 14px; }}"
    return f"<style>\n{rules}\n</style>\n"


def _head(title: str, described: str, size: tuple[float, float], script: str) -> str:
    width, height = (f"{length:g}" for length in size)
    return HEAD.format(
        width=width, height=height, script=script, spoken=spoken(title, described)
    )


def spoken(title: str, described: str) -> str:
    """For those who hear a picture read."""
    return SPOKEN.format(title=escape(title), described=escape(described))


def box(left: float, top: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" '
        f'rx="9" fill="{fill}"/>'
    )


def words(left: float, top: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{left:g}" y="{top:g}"{named}>{escape(text)}</text>'


def arrow(path: str) -> str:
    return f'<path class="line" d="{path}" marker-end="url(#a)"/>'


def read_record(name: str) -> dict[str, Any]:
    """What a study has measured."""
    record: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return record

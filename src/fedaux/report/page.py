"""One self-contained HTML page from sections of text, charts and tables. Whatever a
client wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path

from fedaux import __version__
from fedaux.core.io import write_atomically
from fedaux.report.charts import Chart
from fedaux.report.svg import NARROW, WIDE, read_style


@dataclass(frozen=True)
class Tile:
    """One of the few figures at the top."""

    figure: str
    label: str
    warn: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart that is drawn twice, for wide screens and for phones."""

    chart: Chart
    caption: str = ""
    file: str = ""  # also saved under this name, beside the page
    title: str = ""  # of the file; the section's name, if it has none of its own


@dataclass(frozen=True)
class HtmlTable:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    # of each cell after the first of its row: whether it is bold
    best: Sequence[Sequence[bool]] = ()

    def is_best(self, row: int, column: int) -> bool:
        return (
            bool(self.best)
            and 0 < column <= len(self.best[row])
            and self.best[row][column - 1]
        )


@dataclass(frozen=True)
class TopExamples:
    """The public examples that a client's release scores highest: one strip of images,
    or texts.
    """

    client: str
    image: str = ""  # data: URI
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    key: str  # its anchor
    name: str
    text: str = ""
    figures: Sequence[Figure] = ()
    table: HtmlTable | None = None
    top_examples: Sequence[TopExamples] = ()
    code: str = ""
    details: str = ""  # folded code


def write_page(
    path: Path,
    title: str,
    subtitle: str,
    tiles: Sequence[Tile],
    sections: Sequence[Section],
    *,
    formats: Sequence[str] = ("svg",),
    warnings: Sequence[str] = (),
) -> Path:
    """Style, charts and images are all inside the one file; figures that name a file
    are saved there as well.

    Warnings stand above everything else.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    home = files("fedaux.report")
    template = Environment(autoescape=True, trim_blocks=True).from_string(
        (home / "page.html").read_text("utf-8")
    )
    for section in sections:
        for figure in section.figures:
            for suffix in formats if figure.file else ():
                name = f"{title}: {figure.title or section.name}"
                figure.chart.save(path.parent / f"{figure.file}.{suffix}", name)
    page = template.render(
        title=title,
        subtitle=subtitle,
        tiles=tiles,
        warnings=warnings,
        sections=sections,
        draw=lambda chart: Markup(
            chart.svg(WIDE).inline("wide") + chart.svg(NARROW).inline("narrow")
        ),
        style=Markup(read_style() + (home / "page.css").read_text("utf-8")),
        version=__version__,
        date=date.today().isoformat(),
    )
    write_atomically(path, page.encode())
    return path

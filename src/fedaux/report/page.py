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
from fedaux.report.tables import Table


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
    file: str = ""  # also saved under this name, next to the page
    title: str = ""  # of the file; the section's name, if it has none of its own


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
    table: Table | None = None
    top_examples: Sequence[TopExamples] = ()
    code: str = ""
    details: str = ""  # folded code


def write_page(
    path: Path,
    title: str,
    subtitle: str,
    tiles: Sequence[Tile],
    sections: Sequence[Section | None],
    *,
    formats: Sequence[str] = ("svg",),
    warnings: Sequence[str] = (),
) -> Path:
    """Style, charts and images are all inside the one file; figures that name a file
    are saved there as well.

    Warnings stand above everything else; sections that are None are left out.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    def draw(chart: Chart) -> Markup:
        wide = chart.svg(WIDE).inline("wide")
        narrow = chart.svg(NARROW).inline("narrow")
        return Markup(wide + narrow)

    shown = [section for section in sections if section is not None]
    _save_figures(path.parent, title, shown, formats)
    home = files("fedaux.report")
    source = (home / "page.html").read_text("utf-8")
    template = Environment(autoescape=True, trim_blocks=True).from_string(source)
    style = read_style() + (home / "page.css").read_text("utf-8")
    page = template.render(
        title=title,
        subtitle=subtitle,
        tiles=tiles,
        warnings=warnings,
        sections=shown,
        draw=draw,
        style=Markup(style),
        version=__version__,
        date=date.today().isoformat(),
    )
    write_atomically(path, page.encode())
    return path


def _save_figures(
    folder: Path, title: str, sections: Sequence[Section], formats: Sequence[str]
) -> None:
    for section in sections:
        for figure in section.figures:
            if not figure.file:
                continue
            name = f"{title}: {figure.title or section.name}"
            for suffix in formats:
                figure.chart.save(folder / f"{figure.file}.{suffix}", name)

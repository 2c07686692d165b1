"""One self-contained HTML page from sections of text, charts and tables. Whatever a client wrote is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path

from fedaux import __version__
from fedaux.core.io import write_atomically
from fedaux.report.facts import TopExamples
from fedaux.report.figure_files import save_chart
from fedaux.report.shapes import Part
from fedaux.report.svg import NARROW, WIDE, Chart, read_style

PANEL = 262.0  # width of one of several small charts, three in a row
Draw = Callable[..., Chart]  # takes `width`


@dataclass(frozen=True)
class Tile:
    """One of the few figures at the top."""

    figure: str
    label: str
    warn: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart that is drawn twice, for wide screens and for phones, and small ones of its parts."""

    draw: Draw
    caption: str = ""
    legend: Sequence[Part] = ()
    file: str = ""  # also saved under this name, beside the page
    title: str = ""  # of the file; the section's name, if it has none of its own
    panels: Sequence[tuple[str, Draw]] = ()  # each below its name


@dataclass(frozen=True)
class HtmlTable:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


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
    """Style, charts and images are all inside the one file; figures that name a file are saved there as well.

    Warnings stand above everything else.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    home = files("fedaux.report")
    template = Environment(autoescape=True, trim_blocks=True).from_string((home / "page.html").read_text("utf-8"))
    for section in sections:
        for figure in section.figures:
            for suffix in formats if figure.file else ():
                name = f"{title}: {figure.title or section.name}"
                save_chart(figure.draw(width=WIDE), path.parent / f"{figure.file}.{suffix}", name)
    page = template.render(
        title=title,
        subtitle=subtitle,
        tiles=tiles,
        warnings=warnings,
        sections=sections,
        draw=lambda figure: Markup(figure.draw(width=WIDE).inline("wide") + figure.draw(width=NARROW).inline("narrow")),
        panel=lambda draw: Markup(draw(width=PANEL).inline()),
        style=Markup(read_style() + (home / "page.css").read_text("utf-8")),
        version=__version__,
        date=date.today().isoformat(),
    )
    write_atomically(path, page.encode())
    return path

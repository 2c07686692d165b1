"""Text and tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table


def results_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: Collection[int] = (0,),
    best: Sequence[Sequence[bool]] = (),
) -> Table:
    """Columns of text begin at the left, all others are numbers. `best` says which
    cells after the first are bold.
    """
    table = Table(title=title, title_justify="left", header_style="bold")
    for i, name in enumerate(header):
        # names are copied, so a narrow terminal breaks them and never shortens them
        table.add_column(
            name, justify="left" if i in text_columns else "right", overflow="fold"
        )
    for i, (label, *cells) in enumerate(rows):
        if best:
            cells = [
                f"[bold]{cell}[/bold]" if bold else cell
                for cell, bold in zip(cells, best[i], strict=True)
            ]
        table.add_row(label, *cells)
    return table


def print_plainly(console: Console, words: str) -> None:
    """Print a line as it stands: no markup, no colours, no line breaks."""
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def print_sentences(console: Console, markup: str) -> None:
    """Print sentences, broken between words in a terminal; elsewhere each paragraph is
    one line.
    """
    console.print(markup, soft_wrap=not console.is_terminal)


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 seed`, `3 seeds`, `1,200 records`. `nouns` where an s is not enough."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {nouns or noun + 's'}"


def sparkline(values: Sequence[float]) -> str:
    """Values between 0 and 1 as block characters."""
    heights = [min(7, int(8 * value)) for value in values]
    return "".join("▁▂▃▄▅▆▇█"[height] for height in heights)


def format_seconds(seconds: float) -> str:
    """`9 s`, `3:20`, `2:05:00`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


def format_bytes(count: float) -> str:
    """`840 kB`, `12.3 MB`, `4.56 GB`."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    if count < 1e9:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e9:.2f} GB"

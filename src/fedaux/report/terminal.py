"""Text and tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.table import Table


def results_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: Collection[int] = (0,),
    best: Sequence[Sequence[bool]] = (),
) -> Table:
    """Columns of text begin at the left, all others are numbers; `best` says which
    cells after the first are bold.
    """
    table = Table(title=title, title_justify="left", header_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i in text_columns else "right")
    for i, row in enumerate(rows):
        bold = (False, *best[i]) if best else [False] * len(row)
        table.add_row(
            *(
                f"[bold]{cell}[/bold]" if one else cell
                for cell, one in zip(row, bold, strict=True)
            )
        )
    return table


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 seed`, `3 seeds`, `1,200 records`; `nouns` where an s is not enough."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def sparkline(values: Sequence[float]) -> str:
    """Values between 0 and 1 as block characters."""
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * value))] for value in values)


def format_seconds(seconds: float) -> str:
    """`9 s`, `3:20`, `2:05:00`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_bytes(count: float) -> str:
    """`840 kB`, `12.3 MB`, `4.56 GB`."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"

"""`fedaux cache list | clean`: decoded data, features and extractors on this
machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedaux.cli.common import (
    Json,
    console_for,
    examples,
    loading,
    print_json,
    print_result,
)
from fedaux.core.errors import Exit

if TYPE_CHECKING:
    from fedaux.core.cache import CacheEntry

app = typer.Typer(
    no_args_is_help=True, help="Decoded data, features and extractors on this machine."
)

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="Which; default $FEDAUX_CACHE. At a site: its vault/decoded."
    ),
]


@app.command(
    "list",
    epilog=examples(
        "fedaux cache list", "fedaux cache list --folder sites/berlin/vault/decoded"
    ),
)
def list_(folder: Folder = None, as_json: Json = False) -> None:
    """What is kept, how large it is, when it was last used, and whether it may hold
    private records.
    """
    from fedaux.report.terminal import format_bytes, results_table

    place, entries = _read(folder, as_json)
    if as_json:
        print_json(
            {
                "folder": str(place),
                "entries": [{**vars(one), "path": str(one.path)} for one in entries],
            }
        )
        return
    rows = [
        (
            one.kind,
            format_bytes(one.bytes),
            f"{one.days:.0f}",
            "yes" if one.private else "",
            escape(one.source),
        )
        for one in entries
    ]
    header = ("what", "size", "days unused", "private", "from")
    console = console_for(as_json)
    if rows:
        console.print(results_table(str(place), header, rows, text_columns=(0, 3, 4)))
    total = format_bytes(sum(one.bytes for one in entries))
    console.print(
        (
            f"{place}: {total}. `fedaux cache clean` deletes it; it is made anew when "
            "it is needed."
        ),
        soft_wrap=True,
    )


@app.command(
    epilog=examples(
        "fedaux cache clean                      # everything",
        (
            "fedaux cache clean --private            # only what may hold private "
            "records, or is made of them"
        ),
        (
            "fedaux cache clean --unused 30 --yes    # what nobody has used for 30 "
            "days, without asking"
        ),
    )
)
def clean(
    folder: Folder = None,
    private: Annotated[
        bool, typer.Option("--private", help="Only what may hold private records.")
    ] = False,
    unused: Annotated[
        float,
        typer.Option(min=0, metavar="DAYS", help="Only what was not used for so long."),
    ] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete it. Nothing is lost but time: data are decoded, and extractors trained,
    when they are needed again.
    """
    from fedaux.core.cache import clean_cache
    from fedaux.report.terminal import format_bytes, plural

    place, found = _read(folder, as_json)
    entries = [
        one for one in found if one.days >= unused and (one.private or not private)
    ]
    size = format_bytes(sum(one.bytes for one in entries))
    count = plural(len(entries), "entry", "entries")
    if (
        entries
        and not yes
        and not typer.confirm(f"Delete {count}, {size}, from {place}?", err=True)
    ):
        raise typer.Exit(Exit.NEGATIVE)
    clean_cache(entries)
    facts = {
        "folder": str(place),
        "deleted": [str(one.path) for one in entries],
        "bytes": sum(e.bytes for e in entries),
    }
    print_result(as_json, facts, f"Deleted {count}, {size}, from {place}.")


def _read(folder: Path | None, as_json: bool) -> tuple[Path, list[CacheEntry]]:
    """The folder, and what each part of the package keeps in it."""
    with loading(console_for(as_json)):
        from fedaux.core.cache import list_cache
        from fedaux.core.io import cache_folder
        from fedaux.data import arrays
        from fedaux.pretraining import store
        from fedaux.scoring import features

    place = folder or cache_folder()
    return place, list_cache(place, (*features.CACHED, *store.CACHED, *arrays.CACHED))

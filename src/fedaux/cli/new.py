"""`fedaux new`: a Flower app of your own to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedaux.cli.common import Json, examples, print_result

app = typer.Typer()


@app.command(
    epilog=examples(
        (
            "fedaux new my-app     # writes my-app/pyproject.toml, fedaux.toml, "
            "my_app.py and a README"
        ),
        (
            "fedaux run my-app/fedaux.toml     # without Flower's processes, with "
            "them: see the README"
        ),
    )
)
def new(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="A new folder.")],
    as_json: Json = False,
) -> None:
    """Write a complete Flower app, with an example network and data to replace.
    You can start it with `flwr run` at once.
    """
    from fedaux.flower.new_app import write_app

    paths = write_app(folder)
    names = ", ".join(path.name for path in paths)
    result = {"folder": str(folder), "files": [str(path) for path in paths]}
    written = f"Wrote {names} to {folder}."
    hint = (
        f"Next: `fedaux run {folder}/fedaux.toml`, or with Flower, as "
        f"{folder}/README.md says."
    )
    print_result(as_json, result, written, hint)

"""`fedaux init`: a commented config to start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click import Choice as Choices
from rich.markup import escape

from fedaux.cli.common import Json, examples, print_result

if TYPE_CHECKING:
    from fedaux.data.choices import Choice

app = typer.Typer()


@app.command(
    epilog=examples(
        (
            "fedaux init head              # writes head.toml: one exchange under ε, "
            "on your own images"
        ),
        (
            "fedaux init images            # writes images.toml: several rounds, on "
            "your own images"
        ),
        (
            "fedaux init images --data scans --public web --clients 3   # with "
            "settings chosen from these folders"
        ),
        (
            "fedaux init images --data sites --public web --folders sites   # "
            "sites/berlin/normal/1.png: a client a site"
        ),
        "fedaux init text newsroom     # writes newsroom/text.toml",
        (
            "fedaux init model             # writes model.toml and my_model.py, which "
            "run as they are"
        ),
    )
)
def init(
    kind: Annotated[str, typer.Argument(help="head, images, text or model.")],
    folder: Annotated[
        Path, typer.Argument(help="Where to write; default here.")
    ] = Path(),
    data: Annotated[
        Path | None,
        typer.Option(help="Your labelled images: choose settings from them."),
    ] = None,
    public: Annotated[
        Path | None, typer.Option(help="With --data: the folder of public images.")
    ] = None,
    clients: Annotated[
        int, typer.Option(min=1, help="With --data: how many sites to simulate.")
    ] = 3,
    pretrain: Annotated[
        bool,
        typer.Option(
            "--pretrain",
            help="With --data: train a network on the public images, take no published one.",
        ),
    ] = False,
    folders: Annotated[
        str,
        typer.Option(
            help="With --data: whether its folders are sites, each with its classes in it, or classes."
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write a commented config to start from: for your images, your text, or a model
    and data of your own.

    head is the private head: one exchange under ε. The others train for several rounds.
    """
    from fedaux.config.starters import write_starter
    from fedaux.config.toml import toml_value

    choices = _choices(kind, folder, data, public, clients, folders, pretrain)
    paths = write_starter(
        kind, folder, {choice.key: choice.value for choice in choices}
    )
    print_result(
        as_json,
        {
            "files": [str(path) for path in paths],
            "chosen": {choice.key: vars(choice) for choice in choices},
        },
        *(
            f"[bold]{choice.key}[/bold] = {escape(toml_value(choice.value))}  "
            f"{escape(choice.why)}"
            for choice in choices
        ),
        f"Wrote {' and '.join(map(str, paths))}.",
        f"Next: look through it, then `fedaux run {paths[0]}`.",
    )


def _choices(
    kind: str,
    folder: Path,
    data: Path | None,
    public: Path | None,
    clients: int,
    folders: str,
    pretrain: bool,
) -> list[Choice]:
    """Settings from folders of images; none where no folder is named."""
    if data is None and public is None:
        return []
    if kind not in ("head", "images") or data is None or public is None:
        raise typer.BadParameter(
            (
                "--data and --public go together, and with `fedaux init images` or "
                "`fedaux init head`"
            ),
            param_hint="--data",
        )
    from fedaux.config.sections import AuxConfig, DataConfig
    from fedaux.data.choices import choose_for_images
    from fedaux.data.federated import refuse_same_source
    from fedaux.models.published import installed

    refuse_same_source(
        DataConfig("images", str(data)), AuxConfig("images", str(public))
    )
    if folder.resolve() != Path.cwd():  # paths must hold from there as well
        data, public = data.absolute(), public.absolute()
    encoder = "" if pretrain else next(iter(installed()), "")
    found = choose_for_images(
        data, public, clients, folders=_folders(data, folders), encoder=encoder
    )
    trains, head = ("local.", "distill."), ("privacy.expected_records",)
    return [
        one
        for one in found
        if not one.key.startswith(trains if kind == "head" else head)
    ]


def _folders(data: Path, answer: str) -> str:
    """What the folders in `data` are: sites or classes, asked where only the user can
    know; "" where it is plain.
    """
    from fedaux.data.choices import possible_sites

    found = possible_sites(data)
    if answer and answer not in ("sites", "classes"):
        raise typer.BadParameter("sites or classes", param_hint="--folders")
    if answer or not found:
        return answer
    names = ", ".join(list(found)[:5]) + (", …" if len(found) > 5 else "")
    inner = ", ".join(sorted({name for each in found.values() for name in each})[:5])
    question = (
        f"{data}: are {names} sites or classes? They share the sub-folders {inner}"
    )
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            f"{question}. Add --folders sites or --folders classes",
            param_hint="--folders",
        )
    return str(typer.prompt(question, type=Choices(["sites", "classes"])))

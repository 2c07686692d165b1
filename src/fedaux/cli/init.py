"""`fedaux init`: a commented config to start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click import Choice as Choices
from rich.markup import escape

from fedaux.cli.common import Json, examples, print_result
from fedaux.core.errors import ArgumentError

if TYPE_CHECKING:
    from fedaux.data.choices import Choice
    from fedaux.data.table_choices import TableProposal

# Only a private head is chosen for a number of records.
NOT_OF_ROUNDS = ("privacy.expected_records",)

app = typer.Typer()


@app.command(
    epilog=examples(
        (
            "fedaux init head              # writes head.toml: one exchange under ε, "
            "on your images"
        ),
        (
            "fedaux init images            # writes images.toml: several rounds, on "
            "your images"
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
            "fedaux init table --data registry.csv --site hospital --label diagnosis"
            "   # writes table.toml and schema.toml"
        ),
        (
            "fedaux init table --data oslo.csv --data rome.parquet --label diagnosis"
            "   # a file for each site, or their folder"
        ),
        (
            "fedaux init model             # writes model.toml and my_model.py, which "
            "run as they are"
        ),
    )
)
def init(
    kind: Annotated[str, typer.Argument(help="head, images, table, text or model.")],
    folder: Annotated[
        Path, typer.Argument(help="Where to write. Default: here.")
    ] = Path(),
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help=(
                "Your labelled images, or table: choose settings from them. A table "
                "can be a file of each site: give --data several times, or a folder."
            )
        ),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(help="With --data: the folder of public images, or the table."),
    ] = None,
    clients: Annotated[
        int, typer.Option(min=1, help="With --data: how many sites to simulate.")
    ] = 3,
    pretrain: Annotated[
        bool,
        typer.Option(
            "--pretrain",
            help=(
                "With --data: train a network on the public images, take no published "
                "one."
            ),
        ),
    ] = False,
    folders: Annotated[
        str,
        typer.Option(
            help=(
                "With --data: whether its folders are sites, each with its classes in "
                "it, or classes."
            )
        ),
    ] = "",
    label: Annotated[
        str, typer.Option(help="With --data of a table: the column of the class.")
    ] = "",
    site: Annotated[
        str,
        typer.Option(help="With --data of a table: the column of the site, if any."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write a commented config to start from: for your images, your table, your text,
    or your own model and data.

    head and table are the private head: one exchange under ε. The others train for
    several rounds.
    """
    from fedaux.config.starters import write_starter
    from fedaux.config.toml import toml_value

    contents: dict[str, str] = {}
    lines = []
    if kind != "table" and (label or site):
        option = "--label" if label else "--site"
        raise ArgumentError(
            f"Cannot use {option}: it names a column, and only tables have columns. "
            "Use it with `fedaux init table`."
        )
    if kind == "table" and (data or label or site):
        proposal = _propose_table(folder, data or [], public, label, site, clients)
        choices = proposal.choices
        contents["schema.toml"] = proposal.schema.to_toml(proposal.comments)
        lines = [f"Note: {escape(note)}." for note in proposal.notes]
    else:
        if data and len(data) > 1:
            raise ArgumentError(
                "Cannot use --data: it is given several times, and images are in one "
                "folder. Only a table can be several files. Give --data once."
            )
        images = data[0] if data else None
        choices = _choices(kind, folder, images, public, clients, folders, pretrain)
    values = {choice.key: choice.value for choice in choices}
    paths = write_starter(kind, folder, values, contents)
    for choice in choices:
        value = escape(toml_value(choice.value))
        lines.append(f"[bold]{choice.key}[/bold] = {value}  {escape(choice.why)}")
    lines.append(f"Wrote {' and '.join(map(str, paths))}.")
    reading = "it" if len(paths) == 1 else "them"
    lines.append(f"Next: look through {reading}, then `fedaux run {paths[0]}`.")
    result = {
        "files": [str(path) for path in paths],
        "chosen": {choice.key: vars(choice) for choice in choices},
    }
    print_result(as_json, result, *lines)


def _propose_table(
    folder: Path,
    data: list[Path],
    public: Path | None,
    label: str,
    site: str,
    clients: int,
) -> TableProposal:
    """A schema and settings from a table, or from one of each site."""
    if not data or not label:
        absent = "--label COLUMN" if data else "--data FILE"
        raise ArgumentError(
            "Cannot propose a schema: it needs a file and the column of the class. "
            f"Add {absent}."
        )
    from fedaux.config.sections import AuxConfig, DataConfig
    from fedaux.data.overlap import refuse_same_source
    from fedaux.data.table_choices import propose
    from fedaux.data.tables import table_files

    files: list[Path] = []
    for path in data:
        files += table_files(path) if path.is_dir() else [path]
    if public is not None:
        for path in data:
            refuse_same_source(
                DataConfig("table", str(path)), AuxConfig("table", str(public))
            )
        files = [file for file in files if file.resolve() != public.resolve()]
    if not files:
        raise ArgumentError(
            "Cannot propose a schema: --data has no table but the public one. Name the "
            "labelled table, or the folder with it."
        )
    if folder.resolve() != Path.cwd():
        # The config is written into another folder, and paths must hold from there.
        files = [file.absolute() for file in files]
        public = public.absolute() if public is not None else None
    return propose(files if len(files) > 1 else files[0], label, site, public, clients)


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
        raise ArgumentError(
            "Cannot choose settings: they follow from private and public images. Use "
            "--data and --public together, with `fedaux init images` or `fedaux init "
            "head`."
        )
    from fedaux.config.sections import AuxConfig, DataConfig
    from fedaux.data.choices import choose_for_images
    from fedaux.data.overlap import refuse_same_source
    from fedaux.models.published import installed

    private_data = DataConfig("images", str(data))
    public_data = AuxConfig("images", str(public))
    refuse_same_source(private_data, public_data)
    if folder.resolve() != Path.cwd():
        # The config is written into another folder, and paths must hold from there.
        data = data.absolute()
        public = public.absolute()
    encoder = "" if pretrain else next(iter(installed()), "")
    choices = choose_for_images(
        data, public, clients, folders=_folders(data, folders), encoder=encoder
    )
    if kind == "head":
        return choices
    return [choice for choice in choices if choice.key not in NOT_OF_ROUNDS]


def _folders(data: Path, answer: str) -> str:
    """What the folders in `data` are: sites or classes, asked where only the user can
    know, or "" where it is plain.
    """
    from fedaux.data.choices import possible_sites

    sites = possible_sites(data)
    if answer and answer not in ("sites", "classes"):
        raise ArgumentError(
            f"Cannot use --folders {answer}: the folders are sites or classes. Use "
            "--folders sites or --folders classes."
        )
    if answer or not sites:
        return answer
    names = ", ".join(list(sites)[:5])
    if len(sites) > 5:
        names += ", …"
    shared: set[str] = set().union(*sites.values())
    inner = ", ".join(sorted(shared)[:5])
    if not sys.stdin.isatty():
        raise ArgumentError(
            f"Cannot read {data}: {names} may be sites or classes, and they share the "
            f"sub-folders {inner}. Add --folders sites or --folders classes."
        )
    question = (
        f"{data}: are {names} sites or classes? They share the sub-folders {inner}"
    )
    return str(typer.prompt(question, type=Choices(["sites", "classes"])))

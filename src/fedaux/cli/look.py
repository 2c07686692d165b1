"""`fedaux look`: how many records the sites have, of which classes and values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaux.cli.common import (
    CommandWithSettings,
    Json,
    Overrides,
    console_for,
    examples,
    loading,
    print_json,
    with_local_modules,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fedaux.config.schema import Config
    from fedaux.server.data_look import DataLook

app = typer.Typer()


@app.command(
    cls=CommandWithSettings,
    epilog=examples(
        "fedaux look table.toml --set privacy.look_epsilon=1",
        (
            "fedaux look table.toml --set 'data.look_columns=[\"age\"]' --dry-run     "
            "# how wide the intervals will be"
        ),
    ),
)
def look(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="The TOML file of the run to come."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the look. Default: looks/NAME."),
    ] = None,
    set_: Overrides = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show its cost and the width of its intervals, and stop.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Count the clients' records by class and by the columns of a table, under noise,
    before any run.
    """
    from fedaux.config.schema import Config

    settings = Config.load(with_local_modules(config), set_ or [])
    console = console_for(as_json)
    if dry_run:
        _show_plan(settings, console, as_json)
        return
    with loading(console):
        from fedaux.report.run_page import PAGE_FILE
        from fedaux.runs.look import SCALED_SCHEMA, run_look
        from fedaux.server.data_figures import figures_of_all

    folder = out or Path("looks") / config.stem
    found = run_look(settings, folder)
    page = folder / PAGE_FILE
    schema = folder / SCALED_SCHEMA if found.schema is not None else None
    if as_json:
        facts = figures_of_all(found).to_dict() | {"report": str(page)}
        print_json(facts | {"schema": str(schema)} if schema else facts)
        return
    _show(found, console)
    console.print(f"Report: [bold]{page}[/bold]", soft_wrap=True)
    if schema is not None:
        console.print(
            f"{schema} has the deciles of the columns that noise does not hide.",
            soft_wrap=True,
        )


def _show(found: DataLook, console: Console) -> None:
    from rich.markup import escape

    from fedaux.report.look_page import NO_CLASS, column_rows
    from fedaux.report.terminal import print_sentences, results_table
    from fedaux.server.data_figures import (
        count_in_words,
        describe_data_look,
        figures_of_all,
    )

    figures = figures_of_all(found)
    print_sentences(console, escape(describe_data_look(found)))
    classes = [*figures.classes, (NO_CLASS, figures.unlabelled)]
    rows = [(escape(label), count_in_words(count)) for label, count in classes]
    console.print(results_table("Classes", ("class", "records"), rows))
    if figures.columns:
        table = column_rows(figures)
        cells = [[escape(cell) for cell in row] for row in table.rows]
        console.print(results_table("Columns", table.header, cells))


def _show_plan(settings: Config, console: Console, as_json: bool) -> None:
    from fedaux.runs.look_plan import describe_data_plan, plan_data_look

    plan = plan_data_look(settings)
    if as_json:
        print_json(vars(plan))
        return
    console.print(describe_data_plan(plan), soft_wrap=True)

"""`fedaux compare | sweep | study`: many runs, several at a time, and one table of them all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedaux.cli_common import Json, Settings, Threads, console_for, emit, examples, set_threads

if TYPE_CHECKING:
    from fedaux.grid import Sweep
    from fedaux.sweep import Swept

Jobs = Annotated[int, typer.Option(min=1, help="How many runs at a time, each in a process of its own.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="How many seeds to average over; default: what the file says.")]
Out = Annotated[Path | None, typer.Option(help="Folder for runs, tables and pictures; default runs/NAME.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the program's own."""
    app.command(epilog=examples("fedaux compare examples/digits.toml --methods fedavg,fedaux --jobs 2"))(compare)
    app.command(
        epilog=examples(
            "fedaux sweep grid.toml --jobs 2",
            "fedaux sweep grid.toml --set rounds=20 --set 'sweep.data.alpha=[0.01, 100.0]'",
        )
    )(sweep)
    app.command(
        epilog=examples(
            "fedaux study  # lists them",
            "fedaux study heterogeneity --jobs 2",
            "fedaux study privacy --set data.source=cifar10 --set data.path=DATA --set 'prototypes=[\"resnet8\"]'",
        )
    )(study)


def compare(
    config: Annotated[Path, typer.Argument(help="A TOML file; its `method` plays no part.")],
    methods: Annotated[str, typer.Option(help="Which methods, with commas between; default all nine.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to average over, from the file's own on.")] = 3,
    out: Out = None,
    jobs: Jobs = 1,
    set_: Settings = None,
    threads: Threads = 1,
) -> None:
    """Run several methods on the same data and splits. Started again, it goes on where it stopped."""
    from fedaux.compare import compare as compare_methods
    from fedaux.config import Config
    from fedaux.errors import unknown
    from fedaux.methods import METHODS
    from fedaux.report.terminal import Live

    settings, folder = Config.load(config, set_ or []), out or Path("runs") / config.stem
    names = [name.strip() for name in methods.split(",")] if methods else list(METHODS)
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    set_threads(threads)
    console = Console()
    with Live(console) as live:
        found = compare_methods(settings, folder, seeds, names, jobs=jobs, threads=threads, tell=live.tell)
    show(found, console, f"Test accuracy in %, {config.stem}, {seeds} seed(s)")
    found.check()


def sweep(
    grid: Annotated[Path, typer.Argument(help="A config with a table [sweep] of lists.")],
    out: Out = None,
    jobs: Jobs = 1,
    seeds: Seeds = None,
    set_: Settings = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run every combination of some settings, over seeds. Started again, it goes on where it stopped."""
    from fedaux.grid import Sweep

    _sweep(Sweep.load(grid, _overrides(set_, seeds)), out or Path("runs") / grid.stem, jobs, threads, as_json)


def study(
    name: Annotated[str, typer.Argument(help="Which study; without a name, all of them are listed.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="List the studies, and do nothing else.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for runs, tables and pictures; default runs/study-NAME.")
    ] = None,
    jobs: Jobs = 1,
    seeds: Seeds = None,
    set_: Settings = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run a study that comes with fedaux, on the bundled digits or with --set on data of your own."""
    from fedaux.study import study as find

    if list_ or not name:
        _list(as_json)
        return
    path = find(name).path
    from fedaux.grid import Sweep

    _sweep(Sweep.load(path, _overrides(set_, seeds)), out or Path("runs") / f"study-{name}", jobs, threads, as_json)


def _overrides(settings: list[str] | None, seeds: int | None) -> list[str]:
    return [*(settings or []), *([f"sweep.seeds={seeds}"] if seeds else [])]


def _list(as_json: bool) -> None:
    from fedaux.study import studies

    found = studies().values()
    if as_json:
        emit({one.name: {"title": one.title, "about": one.about, "minutes": one.minutes} for one in found})
        return
    console = Console()
    for one in found:
        question = one.about[: one.about.index("?") + 1]
        console.print(f"[bold]{one.name:<14}[/bold] {f'{one.minutes:g} min':>8}  {escape(question)}", highlight=False)
    console.print("\n`fedaux study NAME --jobs 2` runs one; minutes are for two idle cores.", highlight=False)


def _sweep(plan: Sweep, folder: Path, jobs: int, threads: int, as_json: bool) -> None:
    from fedaux.report.terminal import Live
    from fedaux.results import write_results
    from fedaux.sweep import run_sweep

    set_threads(threads)
    console = console_for(as_json)
    if plan.about:
        console.print(f"[bold]{escape(plan.title)}.[/bold] {escape(plan.about)}", highlight=False)
    with Live(console) as live:
        found = write_results(run_sweep(plan, folder, jobs=jobs, threads=threads, tell=live.tell))
    if as_json:
        emit(found.to_dict())
    else:
        show(found, console, "")
    found.check()


def show(found: Swept, console: Console, title: str) -> None:
    """The table, a second one where two settings vary, what was revealed under noise, and where everything is."""
    from fedaux.report.tables import pivot, summary
    from fedaux.report.terminal import results_table
    from fedaux.results import caption_of, first_column

    table, pivoted = summary(found.curves, first_column(found.sweep)), pivot(found.arms)
    if pivoted:
        title = f"{caption_of(found.sweep)} After the last round:"
        table = pivoted
    console.print(results_table(title or caption_of(found.sweep), table.header, table.texts()))
    if found.privacy:
        console.print(f"[bold]Privacy.[/bold] {found.privacy}\n")
    pictures = " and ".join(map(str, found.pictures))
    console.print(f"Pictures: {pictures}; the table is also in {found.folder / 'table.md'}.")

"""The person at the terminal: `fedaux demo | run | compare | prepare | resume`. Heavy imports wait until needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedaux.cli_common import Settings, Threads, ended, set_threads
from fedaux.cli_deploy import app as deploy_app
from fedaux.cli_privacy import app as privacy_app
from fedaux.cli_run import app as run_app

if TYPE_CHECKING:
    from fedaux.compare import Comparison

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
app.add_typer(run_app)
app.add_typer(privacy_app, name="privacy")
app.add_typer(deploy_app, name="deploy")
console = Console()


@app.callback()
def fedaux() -> None:
    """Federated learning with public auxiliary data, on Flower: FedAUX, FedAVG, FedPROX, FedDF, FedBE."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, table and pictures.")] = Path("fedaux-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many splits and initialisations to average over.")] = 1,
    epsilon: Annotated[float, typer.Option(help="Privacy budget ε of each client's certainty scores.")] = 1.0,
    threads: Threads = 1,
) -> None:
    """Nine methods on ten clients that each hold about one digit. Needs no download and about a minute."""
    from dataclasses import replace

    from fedaux.compare import compare as compare_methods
    from fedaux.demo import DIGITS
    from fedaux.report.live import Live

    set_threads(threads)
    config = replace(DIGITS, privacy=replace(DIGITS.privacy, epsilon=epsilon))
    with Live(console) as live:
        found = compare_methods(config, out, seeds, tell=live.tell, cache=out / "cache")
    _show_comparison(found, out, "Test accuracy in %, 10 clients with about one digit each")


@app.command()
def compare(
    config: Annotated[Path, typer.Argument(help="A TOML file; its `method` plays no part.")],
    methods: Annotated[str, typer.Option(help="Which methods, with commas between; default all nine.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to average over, from the file's own on.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Folder for runs, table and pictures; default runs/NAME.")] = None,
    set_: Settings = None,
    threads: Threads = 1,
) -> None:
    """Run several methods on the same data and splits. Started again, it goes on where it stopped."""
    from fedaux.compare import compare as compare_methods
    from fedaux.config import Config
    from fedaux.errors import unknown
    from fedaux.methods import METHODS
    from fedaux.report.live import Live

    settings, folder = Config.load(config, set_ or []), out or Path("runs") / config.stem
    names = [name.strip() for name in methods.split(",")] if methods else list(METHODS)
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    set_threads(threads)
    with Live(console) as live:
        found = compare_methods(settings, folder, seeds, names, tell=live.tell)
    _show_comparison(found, folder, f"Test accuracy in %, {config.stem}, {seeds} seed(s)")


def _show_comparison(found: Comparison, folder: Path, title: str) -> None:
    from fedaux.report.tables import HEADER, comparison
    from fedaux.report.terminal import results_table

    console.print(results_table(title, HEADER, comparison(found.curves)))
    if found.privacy:
        console.print(f"[bold]Privacy.[/bold] {found.privacy}\n")
    console.print(f"Pictures: {found.pictures[0]} and {found.pictures[1]}; the table is also in {folder / 'table.md'}.")


def main() -> None:
    sys.exit(ended(app))

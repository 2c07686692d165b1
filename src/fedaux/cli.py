"""`fedaux demo | run | resume`: the person at the terminal. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedaux.errors import FedauxError

if TYPE_CHECKING:
    from fedaux.experiment import Result

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console()

Threads = Annotated[
    int, typer.Option(help="Threads for PyTorch; 1 is fastest for small models and exactly repeatable.")
]


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

    from fedaux.demo import DIGITS, compare
    from fedaux.report.tables import HEADER, comparison
    from fedaux.report.terminal import Live, results_table

    _set_threads(threads)
    config = replace(DIGITS, privacy=replace(DIGITS.privacy, epsilon=epsilon))
    with Live(console) as live:
        found = compare(config, out, seeds, tell=live.tell)
    console.print(
        results_table("Test accuracy in %, 10 clients with about one digit each", HEADER, comparison(found.curves))
    )
    console.print(f"[bold]Privacy.[/bold] {found.privacy}\n")
    console.print(f"Pictures: {found.pictures[0]} and {found.pictures[1]}; the table is also in {out / 'table.md'}.")


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A TOML file; every key it leaves out has a default.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default runs/NAME-METHOD-seedN.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override one setting: --set local.lr=0.01")] = None,
    threads: Threads = 1,
) -> None:
    """Run one configuration. In a folder that already holds this very run, go on where it stopped."""
    from fedaux.config import Config
    from fedaux.experiment import run as run_experiment
    from fedaux.report.terminal import Live

    settings = Config.load(config, set_ or [])
    folder = out or Path("runs") / f"{config.stem}-{settings.method}-seed{settings.seed}"
    _set_threads(threads)
    with Live(console) as live:
        result = run_experiment(settings, folder, tell=live.tell)
    _show(result)


@app.command()
def prepare(
    config: Annotated[Path, typer.Argument(help="The TOML file of the run to come.")],
    cache: Annotated[Path | None, typer.Option(help="Where extractors are kept; default $FEDAUX_CACHE.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override one setting: --set pretrain.epochs=20")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads for PyTorch.")] = 2,
) -> None:
    """Pre-train the extractors of a run on its auxiliary data. Stopped or killed, it goes on after the last epoch."""
    from fedaux.config import Config
    from fedaux.experiment import prepare as prepare_experiment
    from fedaux.report.terminal import Live

    settings = Config.load(config, set_ or [])
    _set_threads(threads)
    with Live(console) as live:
        found = prepare_experiment(settings, tell=live.tell, cache=cache)
    for label, path in found.items():
        console.print(f"[bold]{label}[/bold]: {path}", soft_wrap=True)


@app.command()
def resume(folder: Annotated[Path, typer.Argument(help="The folder of a run.")], threads: Threads = 1) -> None:
    """Go on with a run that was stopped, killed or cut off; the result is the same as if it had not been."""
    from fedaux.experiment import resume as resume_experiment
    from fedaux.report.terminal import Live

    _set_threads(threads)
    with Live(console) as live:
        result = resume_experiment(folder, tell=live.tell)
    _show(result)


def _show(result: Result) -> None:
    from fedaux.data.federated import open_data
    from fedaux.methods import METHODS
    from fedaux.report.pictures import draw_run
    from fedaux.report.terminal import sparkline

    config, last = result.state.config, result.state.history[-1]
    label = METHODS[config.method].label
    figure = f"accuracy [bold]{result.accuracy:.3f}[/bold]  {sparkline(result.curve)}"
    console.print(f"\n[bold]{label}[/bold] after {config.rounds} rounds: {figure}")
    if len(last["accuracy"]) > 1:
        for name, accuracy in last["accuracy"].items():
            console.print(f"  {name}: {accuracy:.3f}")
    failed = {client: reason for record in result.state.history for client, reason in record["failures"]}
    if failed:
        client, reason = next(iter(failed.items()))
        console.print(
            f"[bold yellow]{len(failed)} client(s) failed at least once[/bold yellow], {client}: {escape(reason)}"
        )
    console.print(f"[bold]Privacy.[/bold] {result.privacy}")
    pictures = draw_run(open_data(config), result.state, result.folder)
    console.print(f"Everything is in {result.folder} (pictures: {', '.join(path.name for path in pictures)}).")


def _set_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def main() -> None:
    """Errors that name their own remedy are shown as one paragraph; anything else is a bug and keeps its traceback."""
    try:
        app()
    except (FedauxError, ValueError, OverflowError, OSError, ImportError) as error:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)

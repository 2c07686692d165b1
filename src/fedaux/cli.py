"""The person at the terminal: `fedaux demo | run | compare | prepare | resume`. Heavy imports wait until needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedaux.cli_common import Settings, Threads, ended, set_threads
from fedaux.cli_deploy import app as deploy_app
from fedaux.cli_privacy import app as privacy_app
from fedaux.cli_sweep import Jobs, show
from fedaux.cli_sweep import register as register_sweeps

if TYPE_CHECKING:
    from fedaux.experiment import Result

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
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
    jobs: Jobs = 1,
    threads: Threads = 1,
) -> None:
    """Nine methods on ten clients that each hold about one digit. Needs no download and about a minute."""
    from dataclasses import replace

    from fedaux.compare import compare as compare_methods
    from fedaux.demo import DIGITS
    from fedaux.report.terminal import Live

    set_threads(threads)
    config = replace(DIGITS, privacy=replace(DIGITS.privacy, epsilon=epsilon))
    with Live(console) as live:
        found = compare_methods(config, out, seeds, jobs=jobs, threads=threads, tell=live.tell, cache=out / "cache")
    show(found, console, "Test accuracy in %, 10 clients with about one digit each")
    found.check()


register_sweeps(app)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A TOML file; every key it leaves out has a default.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default runs/NAME-METHOD-seedN.")] = None,
    set_: Settings = None,
    threads: Threads = 1,
) -> None:
    """Run one configuration. In a folder that already holds this very run, go on where it stopped."""
    from fedaux.config import Config
    from fedaux.experiment import run as run_experiment
    from fedaux.report.terminal import Live

    settings = Config.load(config, set_ or [])
    folder = out or Path("runs") / f"{config.stem}-{settings.method}-seed{settings.seed}"
    set_threads(threads)
    with Live(console) as live:
        result = run_experiment(settings, folder, tell=live.tell)
    _show(result)


@app.command()
def prepare(
    config: Annotated[Path, typer.Argument(help="The TOML file of the run to come.")],
    cache: Annotated[Path | None, typer.Option(help="Where extractors are kept; default $FEDAUX_CACHE.")] = None,
    set_: Settings = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Afterwards fit a linear classifier to ALL private labels: studies only.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads for PyTorch.")] = 2,
) -> None:
    """Pre-train the extractors of a run on its auxiliary data. Stopped or killed, it goes on after the last epoch."""
    from fedaux.config import Config
    from fedaux.experiment import prepare as prepare_experiment
    from fedaux.experiment import probe as probe_experiment
    from fedaux.prepare.extractor import read_card
    from fedaux.report.pictures import draw_pretraining
    from fedaux.report.terminal import Live, results_table

    settings = Config.load(config, set_ or [])
    set_threads(threads)
    with Live(console) as live:
        found = prepare_experiment(settings, tell=live.tell, cache=cache)
    for label, path in found.items():
        console.print(f"[bold]{label}[/bold]: {path}", soft_wrap=True)
        if path.with_suffix(".json").is_file():  # a published encoder has no curve of ours
            draw_pretraining(read_card(path)["curve"], path.with_suffix(".png"), f"{label}, pre-training")
    if probe:
        with Live(console) as live:
            accuracies = probe_experiment(settings, tell=live.tell, cache=cache)
        title = "Labelled probe: a linear classifier fitted to all private records and labels. It chose nothing."
        rows = [(name, f"{100 * value:.1f}") for name, value in accuracies.items()]
        console.print(results_table(title, ("features", "test accuracy, %"), rows))


@app.command()
def resume(folder: Annotated[Path, typer.Argument(help="The folder of a run.")], threads: Threads = 1) -> None:
    """Go on with a run that was stopped, killed or cut off; the result is the same as if it had not been."""
    from fedaux.experiment import resume as resume_experiment
    from fedaux.report.terminal import Live

    set_threads(threads)
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
    pictures = draw_run(None if config.data.partition == "own" else open_data(config), result.state, result.folder)
    console.print(f"Everything is in {result.folder} (pictures: {', '.join(path.name for path in pictures)}).")


def main() -> None:
    sys.exit(ended(app))

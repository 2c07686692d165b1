"""`fedaux run | resume | prepare | report`: one run, from its config to its report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedaux.cli.common import (
    CommandWithSettings,
    Json,
    Overrides,
    Threads,
    Track,
    console_for,
    examples,
    loading,
    prepare_to_train,
    print_json,
    print_result,
    with_local_modules,
)
from fedaux.cli.dry_run import show_dry_run

if TYPE_CHECKING:
    from fedaux.core.results import RoundResult
    from fedaux.server.result import FinishedRun

PROBE = (
    "Labelled probe: a linear classifier fitted to all private records and labels. It "
    "chose nothing."
)

app = typer.Typer()
ConfigFile = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", help="A TOML file. Every key it leaves out has a default."
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full", help="Print the whole privacy statement, not its two lines."
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder of a run.")
]


@app.command(
    cls=CommandWithSettings,
    epilog=examples(
        "fedaux run examples/digits.toml",
        "fedaux run my.toml --set method=feddf+p --set local.epochs=5",
        "fedaux run my.toml --out runs/first --track tensorboard",
        (
            "fedaux run my.toml --dry-run     # what was found, how long it will take, "
            "whether it fits"
        ),
        "fedaux run my.toml --json | jq .accuracy",
        (
            "fedaux run my.toml --out runs/all --regions 2  # merge two regional "
            "servers: docs, page Scale"
        ),
    ),
)
def run(
    config: ConfigFile,
    out: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Folder of the run. Default: runs/NAME-METHOD-seedN, with -2, -3, … "
                "after it if that is another run's."
            )
        ),
    ] = None,
    set_: Overrides = None,
    track: Track = None,
    regions: Annotated[
        int,
        typer.Option(
            min=0,
            help="Merge this number of regional servers. 0 simulates all clients.",
        ),
    ] = 0,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help=(
                "Look at the data, time a few steps, report what would happen, and "
                "stop."
            ),
        ),
    ] = False,
    threads: Threads = 1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at an image that cannot be read.")
    ] = False,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Run one configuration, or continue it if the folder already has this run."""
    from fedaux.config.schema import Config

    overrides = list(set_ or [])
    if strict:
        overrides.append("data.strict=true")
    # before the imports that take seconds: what is wrong in it is said at once
    settings = Config.load(with_local_modules(config), overrides)
    with loading(console_for(as_json)):
        from fedaux.runs.folders import numbered_folder
        from fedaux.runs.runner import run as run_experiment
        from fedaux.runs.runner import run_over_regions

    if dry_run:
        prepare_to_train(threads)
        show_dry_run(settings, console_for(as_json), as_json)
        return
    folder = out
    if folder is None:
        method = settings.method.replace(":", ".")
        name = f"{config.stem}-{method}-seed{settings.seed}"
        folder = numbered_folder(Path("runs") / name, settings)
    experiment = partial(run_experiment, settings, folder)
    if regions:
        experiment = partial(run_over_regions, settings, folder, regions=regions)
    _run(experiment, folder, track, threads, as_json, full)


@app.command(epilog=examples("fedaux resume runs/my-fedaux-seed0"))
def resume(
    folder: RunFolder,
    track: Track = None,
    threads: Threads = 1,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Continue a run that was stopped or killed. The result is the same as without the
    interruption.
    """
    with loading(console_for(as_json)):
        from fedaux.runs.runner import resume as resume_experiment

    _run(partial(resume_experiment, folder), folder, track, threads, as_json, full)


@app.command(
    cls=CommandWithSettings,
    epilog=examples(
        "fedaux prepare my.toml --set pretrain.epochs=20",
        (
            "fedaux prepare my.toml --probe     # and how good the features are, by "
            "all private labels: studies only"
        ),
    ),
)
def prepare(
    config: ConfigFile,
    cache: Annotated[
        Path | None,
        typer.Option(help="Where extractors are kept. Default: $FEDAUX_CACHE."),
    ] = None,
    set_: Overrides = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help=(
                "Afterwards fit a linear classifier to ALL private labels: studies "
                "only."
            ),
        ),
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads for PyTorch.")] = 2,
    as_json: Json = False,
) -> None:
    """Pre-train the extractors of a run on its auxiliary data. You can start it again
    to continue after the last epoch.
    """
    from fedaux.config.schema import Config

    settings = Config.load(with_local_modules(config), set_ or [])
    console = console_for(as_json)
    with loading(console):
        from fedaux.models.pretraining.store import read_pretraining_card
        from fedaux.runs.runner import pretrain
        from fedaux.runs.runner import probe as probe_experiment
    from fedaux.report.live import Live
    from fedaux.report.model_pages import write_pretraining_page
    from fedaux.report.terminal import results_table

    prepare_to_train(threads)
    with Live(console):
        extractors = pretrain(settings, cache=cache)
        accuracies = {}
        if probe:
            accuracies = probe_experiment(settings, cache=cache)
    for label, path in extractors.items():
        console.print(f"[bold]{escape(label)}[/bold]: {path}", soft_wrap=True)
        # Neither a published encoder nor a random one has a card with a curve.
        if not path.with_suffix(".json").is_file():
            continue
        curve = read_pretraining_card(path)["curve"]
        if curve:
            page = write_pretraining_page(path.with_suffix(".html"), label, curve)
            console.print(f"Report: {page}", soft_wrap=True)
    if accuracies:
        rows = [(name, f"{100 * value:.1f}") for name, value in accuracies.items()]
        console.print(results_table(PROBE, ("features", "test accuracy, %"), rows))
    if as_json:
        paths = {label: str(path) for label, path in extractors.items()}
        print_json({"extractors": paths, "probe": accuracies})


@app.command(
    epilog=examples(
        (
            "fedaux report runs/my-fedaux-seed0         # one run: report.html in its "
            "folder"
        ),
        (
            "fedaux report runs                         # all runs below a folder, "
            "side by side"
        ),
        "fedaux report runs/a runs/b --out both     # these two: both/report.html",
        (
            "fedaux report runs --target 0.8 --figures svg,pdf   # rounds to 80 %, "
            "figures for a paper"
        ),
    )
)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or folders with runs in them."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the page. Default: the first one named."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Also show after how many rounds this accuracy (0 to 1) is reached.",
        ),
    ] = None,
    figures: Annotated[
        str,
        typer.Option(
            metavar="FORMATS",
            help="Formats of the charts next to the page: svg, pdf, png, separated by commas.",
        ),
    ] = "svg",
    as_json: Json = False,
) -> None:
    """Write a self-contained HTML report of a run, or of several side by side."""
    from fedaux.report.busy import busy

    with busy(console_for(as_json), "writing the report"):
        from fedaux.report.comparison_page import write_report

        formats = [name.strip() for name in figures.split(",")]
        path = write_report(*folders, out=out, target=target, formats=formats)
    print_result(as_json, {"report": str(path)}, f"Report: {path}")


def _run(
    experiment: Callable[..., FinishedRun],
    folder: Path,
    track: list[str] | None,
    threads: int,
    as_json: bool,
    full: bool,
) -> None:
    from fedaux.report.live import Live
    from fedaux.runs.callbacks import make_callbacks
    from fedaux.runs.folders import how_to_continue

    callbacks = make_callbacks(track or [])
    prepare_to_train(threads)
    console = console_for(as_json)
    with Live(console, hint=partial(how_to_continue, folder)) as live:
        result = experiment(on_progress=live.on_progress, callbacks=callbacks)
    show_run(result, console, as_json, full)


def _beside(last: RoundResult) -> str:
    """The figures that belong next to an accuracy, and the baseline."""
    from fedaux.core.metrics import METRIC_NAMES, format_percent

    figures = []
    for key, name in METRIC_NAMES.items():
        value = last.mean_metric(key)
        if value is not None:
            figures.append(f"{name} {format_percent(value)}")
    return "  " + ", ".join(figures)


def show_run(
    result: FinishedRun, console: Console, as_json: bool, full: bool = False
) -> None:
    """The result in a paragraph or as JSON, after writing the report."""
    from fedaux.config.methods import find_method
    from fedaux.core.metrics import format_percent
    from fedaux.report.busy import busy
    from fedaux.report.run_page import write_run_report
    from fedaux.report.terminal import plural, print_sentences, sparkline
    from fedaux.server.result import FinishedRun
    from fedaux.server.site_figures import describe_cost_of_look, describe_site_test

    config = result.state.config
    last = result.state.history[-1]
    with busy(console, "writing the report"):
        page = write_run_report(result.folder)
    if as_json:
        print_json({**result.to_dict(), "report": str(page)})
        return
    label = find_method(config.method).label
    rounds = plural(config.rounds, "round")
    accuracy = f"[bold]{result.accuracy_in_words}[/bold]"
    curve = sparkline(result.curve)
    console.print(f"\n[bold]{label}[/bold] after {rounds}: {accuracy}  {curve}")
    if len(result.accuracies) > 1:
        for prototype, value in result.accuracies.items():
            console.print(f"  {escape(prototype)}: {format_percent(value)}")
    if result.curve:
        print_sentences(console, _beside(last))
    site_test = result.state.site_test
    if site_test is not None:
        print_sentences(console, escape(describe_site_test(site_test)))
        print_sentences(console, describe_cost_of_look(site_test))
    # as commands: a `Result` words them for Python
    for warning in FinishedRun(result.state, result.folder).warnings:
        print_sentences(
            console, f"[bold yellow]Warning:[/bold yellow] {escape(warning)}"
        )
    _show_failures(result, console)
    if full:
        console.print(f"[bold]Privacy.[/bold] {result.statement}")
    else:
        protected, unprotected = result.ledger.short()
        console.print(f"[bold]Privacy.[/bold] {protected}")
        console.print(
            f"[bold]{unprotected}[/bold] --full and the report have the full statement."
        )
    console.print(
        f"Report: [bold]{page}[/bold]. Metrics, charts and weights are next to it.",
        soft_wrap=True,
    )


def _show_failures(result: FinishedRun, console: Console) -> None:
    """Say how many clients failed in any round, and the last reason of the first."""
    from fedaux.report.terminal import plural

    reasons = {}
    for round_result in result.state.history:
        for failure in round_result.failures:
            reasons[failure.client] = failure.reason
    if not reasons:
        return
    client, reason = next(iter(reasons.items()))
    count = plural(len(reasons), "client")
    console.print(
        f"[bold yellow]{count} failed at least once[/bold yellow], {client}: "
        f"{escape(reason)}"
    )

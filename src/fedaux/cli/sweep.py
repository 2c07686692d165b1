"""`fedaux demo | compare | sweep`: many runs, several at a time, in one table."""

from __future__ import annotations

from collections.abc import Callable
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
    console_for,
    examples,
    loading,
    prepare_to_train,
    print_json,
    with_local_modules,
)

if TYPE_CHECKING:
    from fedaux.sweeps.grid import Sweep
    from fedaux.sweeps.method_settings import MethodSettings
    from fedaux.sweeps.results import SweepResult

Jobs = Annotated[
    int,
    typer.Option(min=1, help="How many runs at a time, each in a separate process."),
]
Methods = Annotated[
    str,
    typer.Option(
        help="Which methods, separated by commas. Default: the nine of the paper."
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, help="How many seeds to average over. Default: as in the file."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for runs, tables and charts. Default: runs/NAME."),
]
Tuned = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Each method with its winner of `fedaux tune`: a folder or file.",
    ),
]
PresetNames = Annotated[
    list[str] | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Settings of the FedAUX paper: paper.",
    ),
]

app = typer.Typer()


@app.command(
    epilog=examples(
        ("fedaux demo                  # six tuned methods, one seed, a minute or two"),
        "fedaux demo --seeds 5",
    )
)
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for runs, report, tables and charts.")
    ] = Path("fedaux-demo"),
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="How many splits and initialisations to average over."
        ),
    ] = 1,
    rounds: Annotated[
        int, typer.Option(min=1, help="How many rounds of training.")
    ] = 5,
    epsilon: Annotated[
        float, typer.Option(help="Privacy budget ε of each client's certainty scores.")
    ] = 1.0,
    jobs: Jobs = 2,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Compare six methods at their best on ten clients that each hold about one digit.
    No download.
    """
    from dataclasses import replace

    from fedaux.config.presets import DEMO
    from fedaux.sweeps.grid import Sweep
    from fedaux.sweeps.method_settings import MethodSettings

    chosen = MethodSettings.of_the_demo()
    privacy = replace(DEMO.privacy, epsilon=epsilon)
    config = replace(DEMO, rounds=rounds, privacy=privacy)
    plan = Sweep.of(config, {"method": list(chosen.methods)}, seeds, chosen)
    title = (
        "Test accuracy in %, 10 clients with about one digit each. Settings: "
        f"{chosen.source}"
    )
    run_and_show(
        plan,
        out,
        jobs=jobs,
        threads=threads,
        as_json=as_json,
        title=title,
        cache=out / "cache",
    )


@app.command(
    cls=CommandWithSettings,
    epilog=examples(
        "fedaux compare examples/digits.toml",
        (
            "fedaux compare examples/digits.toml --methods fedavg,fedaux --seeds 5 "
            "--jobs 2"
        ),
        (
            "fedaux compare examples/digits.toml --methods fedavg,fedaux --tuned "
            "runs/digits-tune"
        ),
    ),
)
def compare(
    config: Annotated[
        Path, typer.Argument(help="A TOML file. Its `method` is ignored.")
    ],
    methods: Methods = "",
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="How many seeds to average over, from the file's seed on."
        ),
    ] = 3,
    out: Out = None,
    jobs: Jobs = 1,
    set_: Overrides = None,
    tuned: Tuned = None,
    preset: PresetNames = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run several methods on the same data and splits. Start it again to continue."""
    from fedaux.config.methods import PAPER_METHODS
    from fedaux.config.schema import Config
    from fedaux.report.terminal import plural
    from fedaux.sweeps.grid import Sweep

    names = method_names(methods) or list(PAPER_METHODS)
    chosen = chosen_settings(tuned, preset, set_)
    base = Config.load(with_local_modules(config), set_ or [])
    plan = Sweep.of(base, {"method": names}, seeds, chosen)
    title = (
        f"Test accuracy in %, {config.stem}, {plural(seeds, 'seed')}. Settings: "
        f"{chosen.note(base)}"
    )
    run_and_show(
        plan,
        out or default_folder(config.stem, tuned, preset),
        jobs=jobs,
        threads=threads,
        as_json=as_json,
        title=title,
    )


@app.command(
    cls=CommandWithSettings,
    epilog=examples(
        "fedaux sweep grid.toml --jobs 2",
        "fedaux sweep grid.toml --set rounds=20 --set 'sweep.data.alpha=[0.01, 100.0]'",
    ),
)
def sweep(
    grid: Annotated[
        Path, typer.Argument(help="A config with a table \\[sweep] of lists.")
    ],
    out: Out = None,
    jobs: Jobs = 1,
    seeds: Seeds = None,
    set_: Overrides = None,
    tuned: Tuned = None,
    preset: PresetNames = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run every combination of some settings, over seeds. Start it again to
    continue.
    """
    from fedaux.sweeps.grid import Sweep

    chosen = chosen_settings(tuned, preset, set_)
    overrides = sweep_overrides(set_, seeds)
    plan = Sweep.load(with_local_modules(grid), overrides, chosen)
    run_and_show(
        plan,
        out or default_folder(grid.stem, tuned, preset),
        jobs=jobs,
        threads=threads,
        as_json=as_json,
    )


def method_names(text: str) -> list[str]:
    """Parse the names in --methods. An empty list if the option is left out."""
    from fedaux.config.methods import method_name

    return [method_name(name.strip()) for name in text.split(",")] if text else []


def chosen_settings(
    tuned: Path | None, presets: list[str] | None, settings: list[str] | None
) -> MethodSettings:
    """Return the settings of --tuned or --preset; neither may contain a setting of
    --set.
    """
    from fedaux.config.parsing import require
    from fedaux.sweeps.method_settings import AS_CONFIGURED, MethodSettings

    require(
        not (tuned and presets),
        "Cannot use --tuned and --preset together: each sets how methods train. Use "
        "one of them.",
    )
    chosen = AS_CONFIGURED
    if tuned:
        chosen = MethodSettings.read(tuned)
    elif presets:
        chosen = MethodSettings.preset(*presets)
    chosen.refuse(settings or [])
    return chosen


def default_folder(name: str, tuned: Path | None, presets: list[str] | None) -> Path:
    """Return runs/NAME, with a suffix for --tuned and --preset: the same arms with
    other settings are other runs.
    """
    suffixes = ["tuned"] if tuned else presets or []
    return Path("runs") / "-".join([name, *suffixes])


def sweep_overrides(settings: list[str] | None, seeds: int | None) -> list[str]:
    """Return --set and --seeds as overrides of a sweep."""
    overrides = list(settings or [])
    if seeds:
        overrides.append(f"sweep.seeds={seeds}")
    return overrides


def run_and_show(
    plan: Sweep,
    folder: Path,
    *,
    jobs: int,
    threads: int,
    as_json: bool,
    title: str = "",
    cache: Path | None = None,
    after: Callable[[SweepResult], str] | None = None,
) -> None:
    """Run a sweep with a live display, write its report, and show its table.

    `after` writes further files when no run has failed, and returns what to print.
    """
    from fedaux.report.busy import busy
    from fedaux.report.live import Live

    console = console_for(as_json)
    with loading(console):
        from fedaux.sweeps.engine import run_sweep
        from fedaux.sweeps.results import write_results

    prepare_to_train(threads)
    if plan.about:
        console.print(f"[bold]{escape(plan.title)}.[/bold] {escape(plan.about)}")
    with Live(console):
        result = run_sweep(plan, folder, jobs=jobs, threads=threads, cache=cache)
    more = ""
    with busy(console, "writing the report"):
        result = write_results(result)
        if after is not None and not result.failures:
            more = after(result)
    if as_json:
        values = {**result.to_dict(), "report": str(result.report)}
        if more:
            values["more"] = more
        print_json(values)
    else:
        show_sweep(result, console, title)
        if more:
            console.print(more, soft_wrap=True, markup=False)
    result.raise_failures()


def show_sweep(result: SweepResult, console: Console, title: str) -> None:
    """The table, rows by columns where two settings vary; what was revealed under
    noise; where everything is.
    """
    from fedaux.report.arm_tables import pivot
    from fedaux.report.terminal import print_sentences, results_table

    table = pivot(result.arms)
    if table is not None:
        title = f"{result.caption} After the last round:"
    else:
        table = result.table
        title = title or result.caption
    console.print(results_table(title, table.header, table.rows, best=table.best))
    if result.collapsed:
        collapsed = f"[bold yellow]{escape(result.collapsed)}[/bold yellow]\n"
        print_sentences(console, collapsed)
    if result.privacy_line:
        privacy = f"{result.privacy_line}. The report has the full statement."
        print_sentences(console, f"[bold]Privacy.[/bold] {privacy}\n")
    if result.verdict:
        print_sentences(console, f"{escape(result.verdict)}\n")
    beside = "Tables (Markdown, CSV, LaTeX) and charts are next to it."
    console.print(f"Report: [bold]{result.report}[/bold]. {beside}", soft_wrap=True)

"""`fedaux demo | compare | sweep | study`: many runs, several at a time, in one
table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedaux.cli.common import (
    Json,
    Settings,
    Threads,
    console_for,
    examples,
    loading,
    prepare_to_train,
    print_json,
    print_result,
    with_local_modules,
)

if TYPE_CHECKING:
    from fedaux.sweeps.engine import SweepResult
    from fedaux.sweeps.grid import MethodSettings, Sweep

Jobs = Annotated[
    int,
    typer.Option(min=1, help="How many runs at a time, each in a process of its own."),
]
Methods = Annotated[
    str,
    typer.Option(
        help="Which methods, with commas between; default the nine of the paper."
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, help="How many seeds to average over; default: what the file says."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for runs, tables and charts; default runs/NAME."),
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
        help="Settings of a paper: paper; feddf-paper for FedDF's own.",
    ),
]

app = typer.Typer()


@app.command(
    epilog=examples(
        (
            "fedaux demo                  # six methods, each tuned, one seed, about "
            "two minutes"
        ),
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
    from fedaux.sweeps.grid import MethodSettings, Sweep

    chosen = MethodSettings.of_the_demo()
    config = replace(
        DEMO, rounds=rounds, privacy=replace(DEMO.privacy, epsilon=epsilon)
    )
    plan = Sweep.of(config, {"method": list(chosen.methods)}, seeds, chosen)
    title = f"Test accuracy in %, 10 clients with about one digit each. Settings: {chosen.source}"
    _sweep(plan, out, jobs, threads, as_json, title, cache=out / "cache")


@app.command(
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
    )
)
def compare(
    config: Annotated[
        Path, typer.Argument(help="A TOML file; its `method` plays no part.")
    ],
    methods: Methods = "",
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="How many seeds to average over, from the file's own on."
        ),
    ] = 3,
    out: Out = None,
    jobs: Jobs = 1,
    set_: Settings = None,
    tuned: Tuned = None,
    preset: PresetNames = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run several methods on the same data and splits. Started again, it continues."""
    from fedaux.config.methods import PAPER
    from fedaux.config.schema import Config
    from fedaux.report.terminal import plural
    from fedaux.sweeps.grid import Sweep

    names = method_names(methods) or list(PAPER)
    chosen, base = (
        _chosen(tuned, preset, set_),
        Config.load(with_local_modules(config), set_ or []),
    )
    plan = Sweep.of(base, {"method": names}, seeds, chosen)
    title = f"Test accuracy in %, {config.stem}, {plural(seeds, 'seed')}. Settings: {chosen.note(base)}"
    _sweep(
        plan,
        out or Path("runs") / f"{config.stem}{_suffix(tuned, preset)}",
        jobs,
        threads,
        as_json,
        title,
    )


@app.command(
    epilog=examples(
        "fedaux sweep grid.toml --jobs 2",
        "fedaux sweep grid.toml --set rounds=20 --set 'sweep.data.alpha=[0.01, 100.0]'",
    )
)
def sweep(
    grid: Annotated[
        Path, typer.Argument(help="A config with a table \\[sweep] of lists.")
    ],
    out: Out = None,
    jobs: Jobs = 1,
    seeds: Seeds = None,
    set_: Settings = None,
    tuned: Tuned = None,
    preset: PresetNames = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run every combination of some settings, over seeds. Started again, it
    continues.
    """
    from fedaux.sweeps.grid import Sweep

    _sweep(
        Sweep.load(
            with_local_modules(grid),
            _overrides(set_, seeds),
            _chosen(tuned, preset, set_),
        ),
        out or Path("runs") / f"{grid.stem}{_suffix(tuned, preset)}",
        jobs,
        threads,
        as_json,
    )


@app.command(
    epilog=examples(
        "fedaux study                              # lists them",
        "fedaux study heterogeneity                # seconds, on digits",
        (
            "fedaux study linear --scale cpu --jobs 2  # minutes, on CIFAR-10; in the "
            "repository"
        ),
    )
)
def study(
    name: Annotated[
        str, typer.Argument(help="Which study; without a name, all of them are listed.")
    ] = "",
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: seconds, no download. cpu: real data. paper: its sizes."
        ),
    ] = "smoke",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for runs, tables and charts; default runs/study-NAME-SCALE."
        ),
    ] = None,
    jobs: Jobs = 1,
    seeds: Seeds = None,
    set_: Settings = None,
    tuned: Tuned = None,
    preset: PresetNames = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run a study of the paper: on digits, on real data as far as a CPU goes, or at the
    paper's sizes.
    """
    from fedaux.core.errors import import_function
    from fedaux.sweeps.paper_studies import find_study

    if not name:
        _list(scale, as_json)
        return
    found = find_study(name)
    folder = out or Path("runs") / f"study-{name}-{scale}{_suffix(tuned, preset)}"
    if found.alone:
        text = import_function(found.alone, "study")(
            folder, seeds or found.grid(scale).seeds
        )
        print_result(
            as_json,
            {"folder": str(folder), "table": text},
            escape(text),
            f"Files: {folder}",
        )
        return
    plan = found.sweep(scale, _overrides(set_, seeds), _chosen(tuned, preset, set_))
    _sweep(plan, folder, jobs, threads, as_json, after=found.after)


def method_names(text: str) -> list[str]:
    """Parse the names in --methods; an empty list if the option is left out."""
    from fedaux.config.methods import method_name

    return [method_name(name.strip()) for name in text.split(",")] if text else []


def _chosen(
    tuned: Path | None, presets: list[str] | None, settings: list[str] | None
) -> MethodSettings:
    """Return the settings of --tuned or --preset; neither may contain a setting of
    --set.
    """
    from fedaux.config.parsing import require
    from fedaux.sweeps.grid import AS_CONFIGURED, MethodSettings

    require(
        not (tuned and presets),
        "--tuned and --preset: take one of them, each says how methods train.",
    )
    found = (
        MethodSettings.read(tuned)
        if tuned
        else MethodSettings.preset(*presets)
        if presets
        else AS_CONFIGURED
    )
    found.refuse(settings or [])
    return found


def _suffix(tuned: Path | None, presets: list[str] | None) -> str:
    """Return the suffix of the default folder: the same arms with other settings are
    other runs.
    """
    return "".join(f"-{name}" for name in (["tuned"] if tuned else presets or []))


def _overrides(settings: list[str] | None, seeds: int | None) -> list[str]:
    return [*(settings or []), *([f"sweep.seeds={seeds}"] if seeds else [])]


def _list(scale: str, as_json: bool) -> None:
    from fedaux.sweeps.paper_studies import STUDIES

    grids = {name: one.grid(scale) for name, one in STUDIES.items()}
    if as_json:
        rows = {
            name: (one.title, one.question, grids[name].minutes)
            for name, one in STUDIES.items()
        }
        print_json(
            {
                name: dict(zip(("title", "question", "minutes"), row, strict=True))
                for name, row in rows.items()
            }
        )
        return
    console = console_for(as_json)
    for name, one in STUDIES.items():
        minutes = f"{grids[name].minutes:g} min" if grids[name].minutes else "–"
        console.print(
            f"[bold]{name:<14}[/bold] {minutes:>8}  {escape(one.question)}",
            soft_wrap=True,
        )
    console.print(
        "\n`fedaux study NAME --scale smoke | cpu | paper` runs one; minutes are of "
        "one idle core."
    )


def _sweep(
    plan: Sweep,
    folder: Path,
    jobs: int,
    threads: int,
    as_json: bool,
    title: str = "",
    cache: Path | None = None,
    after: str = "",
) -> None:
    from fedaux.core.errors import import_function
    from fedaux.report.busy import busy
    from fedaux.report.live import Live

    console = console_for(as_json)
    with loading(console):
        from fedaux.sweeps.engine import run_sweep, write_results

    prepare_to_train(threads)
    if plan.about:
        console.print(f"[bold]{escape(plan.title)}.[/bold] {escape(plan.about)}")
    with Live(console) as live:
        result = run_sweep(
            plan,
            folder,
            jobs=jobs,
            threads=threads,
            on_progress=live.on_progress,
            cache=cache,
        )
    with busy(console, "writing the report"):
        result = write_results(result)
        more = (
            import_function(after, "study")(result)
            if after and not result.failures
            else ""
        )
    if as_json:
        print_json({**result.to_dict(), "report": str(result.report), "more": more})
    else:
        show(result, console, title)
        if more:
            console.print(more, soft_wrap=True, markup=False)
    result.raise_failures()


def show(result: SweepResult, console: Console, title: str) -> None:
    """The table, rows by columns where two settings vary; what was revealed under
    noise; where everything is.
    """
    from fedaux.report.tables import pivot
    from fedaux.report.terminal import results_table

    pivoted = pivot(result.arms)
    table = pivoted or result.table
    title = (
        f"{result.caption} After the last round:"
        if pivoted
        else title or result.caption
    )
    console.print(results_table(title, table.header, table.texts(), best=table.best()))
    if result.collapsed:
        console.print(f"[bold yellow]{escape(result.collapsed)}[/bold yellow]\n")
    if result.privacy_line:
        console.print(
            (
                f"[bold]Privacy.[/bold] {result.privacy_line}. The report says all of "
                "it.\n"
            ),
            soft_wrap=True,
        )
    if result.verdict:
        console.print(f"{escape(result.verdict)}\n", soft_wrap=True)
    words = "tables (Markdown, CSV, LaTeX) and charts are beside it."
    console.print(f"Report: [bold]{result.report}[/bold]; {words}", soft_wrap=True)

"""`fedaux tune`: good settings for every method, at the same cost for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
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
from fedaux.cli.sweep import Jobs, Methods, method_names

app = typer.Typer()


@app.command(
    cls=CommandWithSettings,
    epilog=examples(
        (
            "fedaux tune examples/digits.toml --methods fedavg+p,scaffold+p,fedaux "
            "--budget 8 --jobs 2"
        ),
        "fedaux compare examples/digits.toml --tuned runs/digits-tune",
        (
            "fedaux tune my.toml --set 'tune.local.lr=[0.01, 0.1]' --set "
            "'tune.distill.steps=[50, 200]'"
        ),
    ),
)
def tune(
    config: Annotated[
        Path,
        typer.Argument(help="A TOML file, if you like with a table \\[tune] of lists."),
    ],
    methods: Methods = "",
    budget: Annotated[
        int | None,
        typer.Option(
            min=1, help=("How many settings of each method to try. Default: 8.")
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="On how many splits to try each. Default: 1."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for runs and winners. Default: runs/NAME-tune."),
    ] = None,
    jobs: Jobs = 1,
    set_: Overrides = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Tune every method with the same number of runs, on validation data. Start
    it again to continue.
    """
    with loading(console_for(as_json)):
        from fedaux.sweeps.method_settings import WINNERS
        from fedaux.sweeps.tuning import (
            TUNING_COLUMNS,
            Tuning,
            run_tuning,
            write_tuning,
        )
    from fedaux.report.live import Live
    from fedaux.report.terminal import results_table

    options: dict[str, Any] = {
        "budget": budget,
        "seeds": seeds,
        "methods": method_names(methods) or None,
    }
    chosen = {key: value for key, value in options.items() if value is not None}
    plan = Tuning.load(with_local_modules(config), set_ or [], **chosen)
    folder = out or Path("runs") / f"{config.stem}-tune"
    console = console_for(as_json)
    prepare_to_train(threads)
    with Live(console):
        tuning = run_tuning(plan, folder, jobs=jobs, threads=threads)
    write_tuning(tuning, folder)
    if as_json:
        print_json({**tuning.to_dict(), "folder": str(folder)})
        return
    # The settings are too long for a column.
    rows = tuning.rows()
    narrow = [row[:-1] for row in rows]
    console.print(results_table(tuning.caption, TUNING_COLUMNS[:-1], narrow))
    for method, *_, settings in rows:
        console.print(
            f"[bold]{escape(method)}[/bold]: {escape(settings)}", soft_wrap=True
        )
    winners = f"Winners: [bold]{folder / WINNERS}[/bold]"
    command = f"`fedaux compare {config} --tuned {folder}`"
    console.print(f"{winners}; {command} compares them.", soft_wrap=True)

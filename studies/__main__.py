"""The paper's studies by name, from the root of the repository:

python -m studies                              # lists them
python -m studies heterogeneity                # seconds, on digits
python -m studies linear --scale cpu --jobs 2  # minutes, on CIFAR-10
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedaux.cli.common import (
    Json,
    Overrides,
    Threads,
    console_for,
    examples,
    print_json,
    print_result,
    run_app,
)
from fedaux.cli.sweep import (
    Jobs,
    PresetNames,
    Seeds,
    Tuned,
    chosen_settings,
    default_folder,
    run_and_show,
    sweep_overrides,
)
from fedaux.core.errors import import_function
from studies.paper import STUDIES, find_study

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

Scale = Annotated[
    str,
    typer.Option(help="smoke: seconds, no download. cpu: real data. paper: its sizes."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for runs, tables and charts; default runs/study-NAME-SCALE."
    ),
]


@app.command(
    epilog=examples(
        "python -m studies                              # lists them",
        "python -m studies heterogeneity                # seconds, on digits",
        "python -m studies linear --scale cpu --jobs 2  # minutes, on CIFAR-10",
    )
)
def study(
    name: Annotated[
        str, typer.Argument(help="Which study; without a name, all of them are listed.")
    ] = "",
    scale: Scale = "smoke",
    out: Out = None,
    jobs: Jobs = 1,
    seeds: Seeds = None,
    set_: Overrides = None,
    tuned: Tuned = None,
    preset: PresetNames = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Run a study of the paper: on digits, on real data as far as a CPU goes, or at the
    paper's sizes.
    """
    if not name:
        print_list(scale, as_json)
        return
    chosen_study = find_study(name)
    folder = out or default_folder(f"study-{name}-{scale}", tuned, preset)
    if chosen_study.alone:
        toy = import_function(chosen_study.alone, "study")
        table = toy(folder, seeds or chosen_study.grid(scale).seeds)
        values = {"folder": str(folder), "table": table}
        print_result(as_json, values, escape(table), f"Files: {folder}")
        return
    settings = chosen_settings(tuned, preset, set_)
    overrides = sweep_overrides(set_, seeds)
    after = None
    if chosen_study.after:
        after = import_function(chosen_study.after, "study")
    run_and_show(
        chosen_study.sweep(scale, overrides, settings),
        folder,
        jobs=jobs,
        threads=threads,
        as_json=as_json,
        after=after,
    )


def print_list(scale: str, as_json: bool) -> None:
    """Print the question of every study, and how long it takes at a scale."""
    if as_json:
        rows = {
            name: {
                "title": study.title,
                "question": study.question,
                "minutes": study.grid(scale).minutes,
            }
            for name, study in STUDIES.items()
        }
        print_json(rows)
        return
    console = console_for(as_json)
    for name, study in STUDIES.items():
        minutes = study.grid(scale).minutes
        duration = f"{minutes:g} min" if minutes else "–"
        question = escape(study.question)
        console.print(
            f"[bold]{name:<14}[/bold] {duration:>8}  {question}", soft_wrap=True
        )
    console.print(
        "\n`python -m studies NAME --scale smoke | cpu | paper` runs one; minutes are "
        "of one idle core."
    )


def main() -> None:
    sys.exit(run_app(partial(app, prog_name="python -m studies")))


if __name__ == "__main__":
    main()

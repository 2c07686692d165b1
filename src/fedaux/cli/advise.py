"""`fedaux advise | methods`: which method, by what was measured in the nearest setting;
and what there is.
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
    console_for,
    examples,
    print_json,
    with_local_modules,
)

if TYPE_CHECKING:
    from fedaux.sweeps.advice import Advice

app = typer.Typer()


@app.command(
    epilog=examples(
        (
            "fedaux advise my.toml                                         # one "
            "recommendation, and its command"
        ),
        (
            "fedaux advise my.toml --table                                 # every "
            "method that was measured"
        ),
        (
            "fedaux advise my.toml --keep-sums --set privacy.epsilon=0.5   # nothing "
            "unprotected but models"
        ),
        (
            "fedaux advise server.toml --records 800 --alpha 0.1           # real "
            "sites: you know what they have"
        ),
    )
)
def advise(
    config: Annotated[
        Path, typer.Argument(help="A TOML file; its `method` plays no part.")
    ],
    keep_sums: Annotated[
        bool,
        typer.Option(
            "--keep-sums", help="Sums of features may not leave a client without noise."
        ),
    ] = False,
    records: Annotated[
        int,
        typer.Option(min=0, help="Records of a site, where the data are at the sites."),
    ] = 0,
    alpha: Annotated[
        float,
        typer.Option(
            min=0,
            help="How uneven the sites are: 0.01 about one class each, 100 all alike.",
        ),
    ] = 0.0,
    table: Annotated[
        bool, typer.Option("--table", help="Show every method that was measured.")
    ] = False,
    set_: Settings = None,
    as_json: Json = False,
) -> None:
    """Recommend a method for this config, by what was measured in the nearest
    setting.
    """
    from dataclasses import asdict

    from fedaux.config.schema import Config
    from fedaux.report.terminal import plural
    from fedaux.sweeps import advice

    settings = Config.load(with_local_modules(config), set_ or [])
    yours = advice.setting_of(settings, records, alpha)
    found = advice.advise(yours, advice.measured(), share_sums=not keep_sums)
    if as_json:
        rows = [
            {
                "method": row.method,
                "label": row.label,
                "needs": row.needs,
                "epsilon": row.epsilon,
                "settings": row.settings,
            }
            | {
                "rounds": row.rounds[at],
                "accuracy": row.accuracy[at],
                "sd": row.spread[at],
            }
            for row, at in found.rows
        ]
        print_json(
            {
                "setting": asdict(yours),
                "nearest": asdict(found.study.setting),
                "source": found.study.source,
            }
            | {
                "differences": found.differences,
                "methods": rows,
                "left_out": found.left_out,
            }
            | {"first": found.first[0].method if found.first else None}
        )
        return
    console = console_for(as_json)
    if found.first is not None:
        best, position = found.first
        console.print(
            f"Take [bold]{best.method}[/bold]: {100 * best.accuracy[position]:.1f} % "
            "in the nearest setting that was measured, after "
            f"{plural(best.rounds[position], 'round')}. "
            f"{escape(advice.consequence(best))}",
            soft_wrap=True,
        )
        console.print(
            f"  fedaux run {config} {advice.options(best)}\n",
            soft_wrap=True,
            markup=False,
        )
        if found.first != found.rows[0]:
            other, at = found.rows[0]
            console.print(
                f"Ahead of it, with less protection: {other.method}, "
                f"{100 * other.accuracy[at]:.1f} % after "
                f"{plural(other.rounds[at], 'round')}. "
                f"{escape(advice.consequence(other))}",
                soft_wrap=True,
            )
    else:
        console.print(
            "Nothing that was measured suits these conditions:",
            "; ".join(found.left_out) + ".\n",
            markup=False,
        )
    console.print(f"Your setting: {advice.describe(yours)}.", soft_wrap=True)
    console.print(
        f"Nearest measured: {escape(found.study.data)}, "
        f"{advice.describe(found.study.setting)} ({escape(found.study.source)}).",
        soft_wrap=True,
    )
    if table:
        _show_table(console, found)
    else:
        console.print("--table shows every method that was measured there.")
    for line in found.differences:
        console.print(f"[bold]Yours differs[/bold]: {escape(line)}.", soft_wrap=True)
    console.print(
        (
            "Whether it holds for your data only your data can tell: `fedaux tune "
            f"{config}`, then `fedaux compare`."
        ),
        soft_wrap=True,
    )


def _show_table(console: Console, found: Advice) -> None:
    from fedaux.report.terminal import results_table

    lines = [
        [
            row.label,
            str(row.rounds[at]),
            f"{100 * row.accuracy[at]:.1f} ± {100 * row.spread[at]:.1f}",
            ", ".join(row.needs) or "–",
        ]
        for row, at in found.rows
    ]
    title = f"Test accuracy in % there, mean ± sample standard deviation of {found.study.splits} splits"
    console.print(
        results_table(title, ["method", "rounds", "accuracy", "needs"], lines, (0, 3))
    )
    for line in found.left_out:
        console.print(f"Left out: {escape(line)}.", soft_wrap=True)


@app.command(epilog=examples("fedaux methods", "fedaux methods --json | jq '.[].name'"))
def methods(as_json: Json = False) -> None:
    """List every method: what leaves a client, what is protected, what it needs, when
    to take it.
    """
    from fedaux.config.method_facts import all_facts
    from fedaux.report.terminal import results_table

    found = all_facts()
    if as_json:
        print_json([vars(one) for one in found])
        return
    header = ["method", "what leaves a client", "protected", "needs", "take it for"]
    lines = [
        [one.name, one.leaves, one.protected, one.needs, one.when] for one in found
    ]
    console = console_for(as_json)
    console.print(results_table("", header, lines, (0, 1, 2, 3, 4)))
    console.print(
        "Every name takes +p as well (scaffold+p): it then starts from an extractor "
        "pre-trained on public data. private-head, fedaux and fedaux-scaffold always "
        "do. With privacy.private_training, models are under ε as well. All methods "
        "send sizes of data and times of replies.",
        soft_wrap=True,
    )

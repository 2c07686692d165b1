"""What `fedaux run --dry-run` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from fedaux.cli.common import print_json

if TYPE_CHECKING:
    from fedaux.config.schema import Config


def show_dry_run(config: Config, console: Console, as_json: bool) -> None:
    """Found, planned, costs, then an error if it will not fit."""
    from fedaux.report.busy import busy
    from fedaux.report.terminal import format_bytes, format_seconds, results_table

    with busy(console, "looking at the data"):
        from fedaux.runs.dry_run import dry_run

        plan = dry_run(config)
    if as_json:
        print_json(plan.to_dict())
        plan.raise_problems()
        return
    data = [(escape(name), escape(words)) for name, words in plan.found.items()]
    console.print(results_table("Found", ("what", ""), data, text_columns=(0, 1)))
    networks = []
    for label, network in plan.networks.items():
        parameters = f"{network.parameters:,}"
        sent = format_bytes(network.sent)
        records_a_second = _rate(1 / max(network.step, 1e-9))
        networks.append((escape(label), parameters, sent, records_a_second))
    header = ("network", "parameters", "sent each way", "records trained a second")
    console.print(results_table("Networks, timed on a few records", header, networks))
    phases = [(name, format_seconds(value)) for name, value in plan.seconds.items()]
    phases.append(("in all", format_seconds(plan.total_seconds)))
    console.print(results_table("About how long", ("phase", ""), phases))
    traffic = "Clients send sums of features once, and no models."
    if plan.bytes_per_round:
        traffic = f"A round sends and receives {format_bytes(plan.bytes_per_round)}."
    if plan.bytes_once:
        once = format_bytes(plan.bytes_once)
        traffic += f" Extractors are sent to the clients once, {once} in all."
    console.print(
        f"{traffic} The largest step needs about {format_bytes(plan.memory)} of memory, "
        f"{format_bytes(plan.available)} are free.",
        soft_wrap=True,
    )
    for warning in plan.warnings:
        console.print(f"Warning: {warning}", soft_wrap=True, markup=False)
    plan.raise_problems()
    console.print(
        "Nothing was trained, nothing was released. Without --dry-run the same command "
        "runs it."
    )


def _rate(value: float) -> str:
    digits = 0 if value >= 10 else 1
    return f"{value:,.{digits}f}"

"""`fedaux privacy report | plan | audit`: the ε spent, the ε worth spending, and
attacks on the guarantee.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedaux.cli.common import (
    SUGGEST_COMMANDS,
    Json,
    console_for,
    examples,
    print_json,
    with_local_modules,
)
from fedaux.core.errors import ArgumentError, Exit

if TYPE_CHECKING:
    from rich.table import Table

    from fedaux.audit.result import AttackResult
    from fedaux.core.progress import ProgressEvent
    from fedaux.runs.look_plan import LookPlan
    from fedaux.runs.planner import Planner

app = typer.Typer(
    suggest_commands=SUGGEST_COMMANDS,
    no_args_is_help=True,
    help="Show the ε spent, plan an ε, and attack the guarantee.",
)

# shares of the noiseless signal for which `plan` says what they would take
SIGNAL_SHARES = (0.5, 0.9)


@app.command(
    epilog=examples(
        (
            "fedaux privacy report runs/my-fedaux-seed0     # what the clients of a "
            "run reported"
        ),
        (
            "fedaux privacy report --vault sites/berlin/vault     # at a site: its "
            "account "
        ),
    )
)
def report(
    folder: Annotated[Path | None, typer.Argument(help="The folder of a run.")] = None,
    vault: Annotated[
        Path | None, typer.Option(help="At a site: the folder with its account.")
    ] = None,
    delta: Annotated[
        float, typer.Option(help="With --vault: the δ at which to state the total.")
    ] = 1e-5,
    limit: Annotated[
        int,
        typer.Option(
            help="How many clients to show, those that spent most first. 0 shows all."
        ),
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show each client's noisy releases, its total ε, and the data without noise."""
    if vault is not None and folder is None:
        _site_report(vault, delta, as_json)
        return
    if folder is None or vault is not None:
        raise ArgumentError(
            "Cannot show a report: it needs either a run or a vault. Name the folder "
            "of a run, or use --vault FOLDER at a site."
        )
    from fedaux.report.terminal import results_table
    from fedaux.server.run_state import RunState

    ledger = RunState.load(folder).ledger
    rows = ledger.rows()
    table = ledger.to_dict()
    console = console_for(as_json)
    if as_json:
        names = ("client", "releases", "trained", "epsilon")
        clients = [dict(zip(names, row, strict=True)) for row in rows]
        print_json(
            {key: table[key] for key in ("epsilon", "delta", "statement", "crosses")}
            | {"clients": clients}
        )
        return
    if rows:
        columns = ("client", "releases", "private training", "ε of everything")
        shown = rows[: limit or None]
        title = (
            f"ε at δ = {ledger.delta:g}. The {len(shown)} of {len(rows)} clients that "
            "spent most"
        )
        console.print(results_table(title, columns, shown))
    crosses = [(row["what"], row["protection"]) for row in table["crosses"]]
    console.print(
        results_table(
            "What leaves a client", ("what", "protection"), crosses, text_columns=(0, 1)
        )
    )
    console.print(f"[bold]Privacy.[/bold] {ledger.statement()}")


def _site_report(vault: Path, delta: float, as_json: bool) -> None:
    """A client's own account: it knows of everything that it sent, whether or not
    anyone received it.
    """
    from fedaux.privacy.account_file import FILE
    from fedaux.privacy.accounting import BudgetError
    from fedaux.privacy.site_account import SiteAccount
    from fedaux.report.terminal import results_table

    accounts = [
        SiteAccount.read(path.parent, delta) for path in sorted(vault.rglob(FILE))
    ]
    if not accounts:
        raise BudgetError(
            f"Cannot show what was spent: there is no account below {vault}, so "
            "nothing was sent under noise, or this is no vault. Name the vault of a "
            "site or of a run."
        )
    console = console_for(as_json)
    if as_json:
        print_json({"accounts": [account.to_dict() for account in accounts]})
        return
    for account in accounts:
        header = ("entry", "what", "noise σ", "sampling rate", "steps")
        console.print(results_table(str(account.folder), header, account.rows()))
        console.print(f"[bold]Privacy.[/bold] {account.statement()}")


@app.command(
    epilog=examples(
        "fedaux privacy plan --records 625 --epsilon 0.1 --clients 80",
        (
            "fedaux privacy plan my.toml --records 2500     # on the public data of "
            "your config"
        ),
        (
            "fedaux privacy plan --clients 5 --held-out 2000 --look-epsilon 1     # a "
            "test at the sites"
        ),
    )
)
def plan(
    config: Annotated[
        Path | None,
        typer.Argument(help="The TOML file of the run. Without it, digits are used."),
    ] = None,
    records: Annotated[
        int, typer.Option(min=1, help="How many records a client has.")
    ] = 625,
    clients: Annotated[
        int, typer.Option(min=2, help="How many clients take part in a round.")
    ] = 10,
    epsilon: Annotated[
        float, typer.Option(help="The ε that a client would spend on its scores.")
    ] = 1.0,
    delta: Annotated[float, typer.Option(help="Its δ.")] = 1e-5,
    adjacency: Annotated[
        str, typer.Option(help="replace-one or add-remove.")
    ] = "replace-one",
    held_out: Annotated[
        int,
        typer.Option(
            min=0,
            help=(
                "How many records all clients hold out together, to test the model on "
                "(data.site_test_fraction). With 0, no look is planned."
            ),
        ),
    ] = 0,
    look_epsilon: Annotated[
        float, typer.Option(help="The ε of the look at them (privacy.look_epsilon).")
    ] = 1.0,
    out: Annotated[
        Path, typer.Option(help="File for the chart of the trade-off.")
    ] = Path("privacy-plan.svg"),
    as_json: Json = False,
) -> None:
    """Simulate on public data whether the scores carry a signal. This reads no private data
    and spends nothing.
    """
    from fedaux.report.busy import busy

    console = console_for(as_json)
    if config is None:
        console.print(
            "Scikit-learn's digits replace your public data. Name your config to "
            "plan with yours."
        )
    with busy(console, "simulating the scores on public data"):
        from fedaux.runs.runner import planner

        if config is not None:
            config = with_local_modules(config)
        plans = planner(config, clients, delta, adjacency)
        outcome = plans.plan(epsilon, records)
    console.print(
        f"With {records} records and ({epsilon:g}, {delta:g})-privacy ({adjacency}), "
        f"each coordinate of a client's mean gets noise of σ = {outcome.sigma:.4f}, "
        f"where the clients' means differ by {outcome.signal:.4f}: signal to noise "
        f"{outcome.signal / outcome.sigma:.2f}.",
    )
    right = round(100 * outcome.right)
    ideal = round(100 * outcome.right_without_noise)
    even = round(100 * outcome.even)
    kept = round(100 * outcome.kept)
    console.print(
        f"Of {clients} teachers, {outcome.teachers:.1f} then count on a public "
        f"example, and {right} % of the weight goes to the right ones ({ideal} % without "
        f"noise, {even} % if all counted alike). [bold]{kept} % of the signal is "
        "kept[/bold]. Expect no more than that of what FedAUX without noise would "
        "gain over FedDF+P.",
    )
    for share in SIGNAL_SHARES:
        console.print(_advice(plans, share, epsilon, records))
    look = plans.look(held_out, epsilon, look_epsilon) if held_out else None
    if look is not None:
        console.print(_describe_look(look, clients))
    _draw(plans, records, out)
    if as_json:
        facts = {
            **vars(outcome),
            "kept": outcome.kept,
            "delta": delta,
            "chart": str(out),
        }
        if look is not None:
            facts["look"] = {
                **vars(look),
                "half_width": look.half_width,
                "half_width_apart": look.half_width_apart,
            }
        print_json(facts)
    console.print(f"The trade-off is drawn in {out}.")


def _describe_look(look: LookPlan, clients: int) -> str:
    from fedaux.privacy.accounting import round_up

    def points(share: float) -> str:
        return f"{100 * share:.2g}"

    cost = (
        f"A look at {look.records:,} held-out records at ε = {look.epsilon:g} and one "
        f"release cost a client ε = {round_up(look.total)} together. The 95 % interval "
        f"of an accuracy of {100 * look.accuracy:.0f} % will be "
    )
    apart = (
        f"± {points(look.half_width_apart)} points if each of {clients} clients adds its "
        "own noise."
    )
    if look.noise is None or look.half_width is None:
        return f"{cost}{apart} For a secure sum, these are too few."
    return (
        f"{cost}± {points(look.half_width)} points in one secure sum (standard "
        f"deviations: {points(look.noise)} by the noise, {points(look.sampling)} by the "
        f"sample), and {apart}"
    )


def _draw(planner: Planner, records: int, out: Path) -> None:
    """What is left of the signal over ε, for a quarter, once and four times as many
    records.
    """
    from fedaux.report.charts import Line, LineChart
    from fedaux.report.terminal import plural

    epsilons = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    sizes = {
        max(1, round(factor * records)): tone
        for factor, tone in ((0.25, "t3"), (1, "hero"), (4, "t0"))
    }
    lines = [
        Line(plural(size, "record"), planner.curve(epsilons, size), tone)
        for size, tone in sizes.items()
    ]
    values = [f"{epsilon:g}" for epsilon in epsilons]
    chart = LineChart(
        lines,
        "ε",
        "share of the noiseless signal",
        top=1.0,
        percent=True,
        x_values=values,
    )
    privacy = planner.privacy
    chart.save(
        out,
        (
            f"{plural(planner.clients, 'client')}, δ = {privacy.delta:g}, "
            f"{privacy.adjacency}"
        ),
    )


def _advice(made: Planner, share: float, epsilon: float, records: int) -> str:
    enough = made.epsilon_for(share, records)
    if enough == float("inf"):
        return f"To keep {share:.0%}: no ε is enough with {records} records."
    needed = made.records_for(share, epsilon, records)
    return (
        f"To keep {share:.0%}: ε = {enough:.2g} with {records} records, or {needed:,} "
        f"records at ε = {epsilon:g}."
    )


@app.command(
    epilog=examples(
        "fedaux privacy audit --site site.toml",
        "fedaux privacy audit --site site.toml --only own-gate --only own-source",
    )
)
def audit(
    site: Annotated[
        Path | None, typer.Option(help="The site.toml whose settings are attacked.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This attack. You can repeat it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack the settings of your site, with synthetic records."""
    if site is None:
        raise ArgumentError(
            "Cannot attack: no site is named. Add --site site.toml with the settings "
            "of your site. Attacks on the package itself are among its tests "
            "(docs/proofs.md)."
        )
    from fedaux.audit.run import audit_site
    from fedaux.config.schema import Config
    from fedaux.core.progress import report_to
    from fedaux.report.progress import describe

    console = console_for(as_json)
    config = Config.load(with_local_modules(site))
    with console.status("attacking") as status:

        def show(event: ProgressEvent) -> None:
            status.update(describe(event))

        with report_to(show):
            results = list(audit_site(config, only or ()))
    violated = [result.name for result in results if result.violated]
    if as_json:
        findings = [_result_facts(result) for result in results]
        print_json(
            {
                "violated": bool(violated),
                "delta": config.privacy.delta,
                "findings": findings,
            }
        )
    else:
        console.print(_results_table(results, config.privacy.delta))
        for result in results:
            if result.skipped:
                console.print(f"{result.name}: skipped, {escape(result.detail)}")
            elif result.violated:
                console.print(f"{result.name}: {escape(result.detail)}")
    if violated:
        console.print(
            "[bold red]The claim does not hold[/bold red] against "
            f"{', '.join(violated)}."
        )
        raise typer.Exit(Exit.NEGATIVE)
    if all(result.skipped for result in results):
        console.print(
            "[bold red]Nothing could be attacked[/bold red], for the reasons above."
        )
        raise typer.Exit(Exit.NEGATIVE)
    console.print(
        "[bold]No violation was found.[/bold] An audit can refute a claim, not prove "
        "it: docs/proofs.md does."
    )


def _results_table(results: list[AttackResult], delta: float) -> Table:
    from fedaux.report.terminal import results_table

    header = ("attack", "what is attacked", "claimed", "proven", "verdict")
    rows = []
    for result in results:
        claimed = f"{result.claimed:.3g}"
        proven = f"{result.bound:.3g}"
        verdict = "holds"
        if result.violated:
            verdict = "[bold red]violated[/bold red]"
        if result.skipped:
            claimed = proven = "–"
            verdict = "skipped"
        rows.append((result.name, result.attacked, claimed, proven, verdict))
    title = f"ε claimed, and ε proven against it, at δ = {delta:g}"
    return results_table(title, header, rows, text_columns=(0, 1, 4))


def _result_facts(result: AttackResult) -> dict[str, object]:
    """JSON knows no infinity: null is an ε that nothing bounds."""
    bound = result.bound if result.bound < float("inf") else None
    return {**vars(result), "violated": result.violated, "bound": bound}

"""The commands of `fedaux deploy` that look at a deployment: status and metrics of a
run, checks of a site and of the server, and entries that a site has lost.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fedaux.cli.common import Json, console_for, examples, print_json, print_result
from fedaux.core.errors import Exit

if TYPE_CHECKING:
    from fedaux.deploy.checks import CheckResult
    from fedaux.deploy.status import Status

app = typer.Typer()

StuckAfter = Annotated[
    float | None,
    typer.Option(
        min=1, help=("Seconds without progress. Default: as the run has measured.")
    ),
]
WatchedFolder = Annotated[
    Path,
    typer.Argument(
        help=(
            "The folder of the deployment, of its server, or of a run that merges "
            "regions."
        )
    ),
]
RunHome = Annotated[
    Path | None,
    typer.Option(
        help=(
            "The run's folder, if it is not server/run. For a regional server: "
            "OUT/regions/1of2, say."
        )
    ),
]
CHECK_MARKS = {
    True: "[green]ok[/green]     ",
    False: "[bold red]problem[/bold red]",
    None: "[yellow]unknown[/yellow]",
}


@app.command(
    epilog=examples(
        (
            "fedaux deploy status hospitals                  # until Ctrl-C, from its "
            "own folder, without a name"
        ),
        "fedaux deploy status hospitals --json | jq .state",
        (
            "fedaux deploy status hospitals --once || mail -s 'the run needs help' "
            "me@example.org"
        ),
    )
)
def status(
    folder: WatchedFolder = Path(),
    once: Annotated[
        bool, typer.Option("--once", help="Show it once, and end.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks.")
    ] = 2.0,
    stuck_after: StuckAfter = None,
    run: RunHome = None,
    as_json: Json = False,
) -> None:
    """Show what the run and its sites are doing. Exits with code 1 if the run is
    stuck or a site is offline.
    """
    from fedaux.deploy.status import status_panel, watch

    read = _reader(folder, run, stuck_after)
    console = console_for(as_json)
    if as_json:
        last = read()
        print_json(last.to_dict())
    elif once or not console.is_terminal:
        last = read()
        console.print(status_panel(last))
    else:
        last = watch(console, read, every)
    if last.problems:
        raise typer.Exit(Exit.NEGATIVE)


@app.command(
    epilog=examples(
        "fedaux deploy metrics hospitals     # curl http://127.0.0.1:9464/metrics"
    )
)
def metrics(
    folder: WatchedFolder = Path(),
    host: Annotated[
        str, typer.Option(help="Address to listen at. It asks for no password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 9464,
    stuck_after: StuckAfter = None,
    run: RunHome = None,
) -> None:
    """Serve the status to Prometheus, until Ctrl-C. It needs the package
    prometheus-client.
    """
    from fedaux.deploy.metrics import serve_metrics

    with serve_metrics(_reader(folder, run, stuck_after), host, port) as address:
        console_for(False).print(
            f"metrics of {escape(str(folder.absolute()))} at {address}", soft_wrap=True
        )
        signal.pause()


def _reader(
    folder: Path, run: Path | None, stuck_after: float | None
) -> Callable[[], Status]:
    from fedaux.deploy.link import ControlLink, RegionalServers, merges_regions
    from fedaux.deploy.status import read_status, server_folder

    if merges_regions(folder):
        return partial(
            read_status,
            folder,
            RegionalServers(folder),
            stuck_after=stuck_after,
            folder=folder,
        )
    server = server_folder(folder)
    return partial(
        read_status, server, ControlLink(server), stuck_after=stuck_after, folder=run
    )


@app.command(
    epilog=examples(
        "fedaux deploy check hospitals/sites/berlin     # at the site, before it takes "
        "part"
    )
)
def check(
    folder: Annotated[Path, typer.Argument(help="The folder of a site.")],
    as_json: Json = False,
) -> None:
    """Find the problems of a site before it takes part: certificate, server, clock,
    key, data, disk, budget.
    """
    from fedaux.deploy.checks import check_site

    _show(folder, check_site(folder), as_json)


@app.command(
    epilog=examples(
        "fedaux deploy preflight hospitals     # at the server, before run.sh"
    )
)
def preflight(folder: WatchedFolder = Path(), as_json: Json = False) -> None:
    """Find problems of the server before anything is sent: data, pre-training, disk, and
    offline sites.
    """
    from fedaux.deploy.link import ControlLink
    from fedaux.deploy.preflight import preflight as checks
    from fedaux.deploy.status import server_folder

    server = server_folder(folder)
    _show(server, checks(server, ControlLink(server)), as_json)


def _show(folder: Path, checks: Iterable[CheckResult], as_json: bool) -> None:
    """Print each finding as it is made; end with 1 if there is a problem."""
    # for a module:function next to the settings, as supernode.sh has it
    sys.path.append(str(folder.absolute()))
    console = console_for(as_json)
    findings = []
    for check in checks:
        findings.append(check)
        line = f"{CHECK_MARKS[check.ok]}  {escape(check.name)}: {escape(check.detail)}"
        console.print(line, soft_wrap=True)
        if check.remedy:
            console.print(f"         → {escape(check.remedy)}", soft_wrap=True)
    if as_json:
        print_json({"findings": [vars(check) for check in findings]})
    if any(check.ok is False for check in findings):
        raise typer.Exit(Exit.NEGATIVE)


@app.command(
    "write-off",
    epilog=examples("fedaux deploy write-off hospitals/sites/berlin --entries 7"),
)
def write_off(
    folder: Annotated[Path, typer.Argument(help="The folder of a site.")],
    entries: Annotated[
        int,
        typer.Option(
            min=1,
            help="The number of entries that the server knows of, from the site's log.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """For an owner whose newest vault is lost: the missing entries count as the whole
    rest of the budget.

    The site answers again what it has stored. Anything new under noise is refused until
    its owner raises privacy.epsilon_total.
    """
    from fedaux.config.schema import Config
    from fedaux.deploy.env import read_env
    from fedaux.privacy.account import BudgetStore, account_folder
    from fedaux.privacy.accounting import round_up

    name = read_env(folder / "site.env")["NAME"]
    config = Config.load(folder / "site.toml")
    store = BudgetStore(account_folder(config, folder / "vault", name), config.privacy)
    missing = store.write_off(entries)
    account = store.account()
    result = {
        "missing": missing,
        "epsilon": account.epsilon,
        "entries": account.entries,
    }
    spent = f"ε = {round_up(account.epsilon)} in {account.entries} entries"
    print_result(as_json, result, f"{missing} entries are written off: {spent}.")

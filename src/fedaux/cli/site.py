"""`fedaux site`: which runs a site's owner approves, and the log of the orders that
were answered.
"""

from __future__ import annotations

import getpass
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaux.cli.common import SUGGEST_COMMANDS, Json, examples, print_result
from fedaux.core.event_log import printable

if TYPE_CHECKING:
    from fedaux.client.approvals import ApprovalLog, LogEntry

app = typer.Typer(
    suggest_commands=SUGGEST_COMMANDS,
    no_args_is_help=True,
    help="At a site: pending plans, the owner's decisions, and the log.",
)

Folder = Annotated[Path, typer.Option("--site", help="The folder of the site.")]
Identity = Annotated[
    str,
    typer.Argument(
        help="As `fedaux site pending` shows it. Its first 12 digits are enough."
    ),
]


@app.command(epilog=examples("fedaux site pending --site hospitals/sites/berlin"))
def pending(site: Folder = Path(), as_json: Json = False) -> None:
    """List plans of runs that wait for a decision: who asks, the method, the data that
    would leave, and all settings.
    """
    entries = _log(site).pending()
    lines = []
    plans = []
    for entry in entries:
        lines.append(f"{entry.id}  since {entry.time}\n{_plan_text(entry.facts)}")
        plans.append({"id": entry.id, "since": entry.time, **entry.facts})
    if not lines:
        lines.append("nothing waits for an approval")
    print_result(as_json, {"pending": plans}, "\n".join(lines))


@app.command(
    epilog=examples("fedaux site approve 3f2a9c0d11e4 --site hospitals/sites/berlin")
)
def approve(identity: Identity, site: Folder = Path(), as_json: Json = False) -> None:
    """Approve the plan of a run. The site then answers its orders, up to the numbers in
    the plan.
    """
    _decide(site, identity, "approved", as_json)


@app.command(
    epilog=examples("fedaux site refuse 3f2a9c0d11e4 --site hospitals/sites/berlin")
)
def refuse(identity: Identity, site: Folder = Path(), as_json: Json = False) -> None:
    """Refuse the plan of a run, even if it was approved before. The site then refuses its
    orders.
    """
    _decide(site, identity, "refused", as_json)


@app.command(
    epilog=examples(
        "fedaux site log --verify", "fedaux site log --verify --head 12:9f31…"
    )
)
def log(
    site: Folder = Path(),
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Only show whether the log is whole, and its head."
        ),
    ] = False,
    head: Annotated[
        str,
        typer.Option(
            help="A head that was noted earlier: the log must continue from there."
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Show proposals, decisions and answers. A log that was changed, cut or reordered
    is an error.
    """
    approval_log = _log(site)
    entries = approval_log.entries()
    now = approval_log.head
    if head:
        approval_log.check_head(head)
    lines = []
    if not verify:
        lines += [_log_line(entry) for entry in entries]
    lines.append(f"the log is whole. Its head, to be noted elsewhere: {now}")
    result = {"head": now, "entries": [vars(entry) for entry in entries]}
    print_result(as_json, result, "\n".join(lines))


@app.command(
    "tests", epilog=examples("fedaux site tests --site hospitals/sites/berlin")
)
def own_tests(site: Folder = Path(), as_json: Json = False) -> None:
    """Show the exact results of tests on this site's held-out records, beside a model
    that the site has trained alone. They are not sent.
    """
    from fedaux.client.own_figures import OwnFigures, in_words
    from fedaux.deploy.env import read_env

    read_env(site / "site.env")  # or it is no site's folder
    found = OwnFigures.read_all(site / "vault")
    lines = [f"{test.time}  run {test.run}\n    {in_words(test)}" for test in found]
    if not lines:
        lines.append("no model has been tested here")
    print_result(
        as_json, {"tests": [vars(test) for test in found]}, printable_lines(lines)
    )


def printable_lines(lines: list[str]) -> str:
    """Join lines; a server chose the ids of runs, so escapes in them are not shown."""
    return "\n".join(printable(line) for text in lines for line in text.split("\n"))


def _log_line(entry: LogEntry) -> str:
    """One event, for an order that was begun or answered, its kind and its hash."""
    line = f"{entry.time}  {entry.event:9}  {entry.id}  {entry.by}"
    if entry.event in ("begun", "answered"):
        line += f"  {entry.facts['kind']} order {entry.facts['order']}"
    return printable(line)


def _decide(site: Path, identity: str, event: str, as_json: bool) -> None:
    _log(site).decide(identity, event, getpass.getuser())
    print_result(
        as_json, {"id": identity, "decision": event}, f"{identity} is {event}."
    )


def _plan_text(plan: dict[str, object]) -> str:
    """Return a plan as its owner reads it.

    The server wrote parts of it. So nothing but printable text is shown, and a line
    that is broken shows where: a text with many spaces would otherwise look like lines
    of our own.
    """
    lines = []
    for name, value in plan.items():
        if name not in ("words", "orders"):
            lines.append(f"    {name} = {value}")
    orders = plan.get("orders", [])
    assert isinstance(orders, list)
    for order in orders:
        lines.append(f"    at most {order['at most']} orders to {order['to']}:")
        for name, value in order.items():
            if name not in ("to", "at most"):
                lines.append(f"        {name} = {value}")
    width = shutil.get_terminal_size().columns - 2
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(printable(line), width, subsequent_indent="        ↳ ")
    return "\n".join(wrapped)


def _log(site: Path) -> ApprovalLog:
    from fedaux.client.approvals import ApprovalLog
    from fedaux.deploy.env import read_env

    read_env(site / "site.env")  # or it is no site's folder
    return ApprovalLog(site / "vault")

"""`fedaux site`: what a site's owner decides, and the log of everything that has left."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaux.cli.common import Json, examples, print_result

if TYPE_CHECKING:
    from fedaux.client.approvals import ApprovalLog

app = typer.Typer(no_args_is_help=True, help="At a site: what is asked of it, the owner's approval, and the log.")

Folder = Annotated[Path, typer.Option("--site", help="The folder of the site.")]
Identity = Annotated[str, typer.Argument(help="As `fedaux site pending` shows it.")]


@app.command(epilog=examples("fedaux site pending --site hospitals/sites/berlin"))
def pending(site: Folder = Path(), as_json: Json = False) -> None:
    """List what the server has asked for and nobody has decided: method, settings, and what would leave."""
    found = _log(site).pending()
    lines = [f"{one.id}  {one.facts.get('rule', '')}  since {one.time}\n{_facts(one.facts)}" for one in found]
    facts = [{"id": one.id, "since": one.time, **one.facts} for one in found]
    print_result(as_json, {"pending": facts}, "\n".join(lines) or "nothing waits for an approval")


@app.command(epilog=examples("fedaux site approve 3f2a9c0d11e4b7a8 --site hospitals/sites/berlin"))
def approve(identity: Identity, site: Folder = Path(), as_json: Json = False) -> None:
    """Approve a proposal: its orders are answered from now on, in every round of its run."""
    _decide(site, identity, "approved", as_json)


@app.command(epilog=examples("fedaux site refuse 3f2a9c0d11e4b7a8 --site hospitals/sites/berlin"))
def refuse(identity: Identity, site: Folder = Path(), as_json: Json = False) -> None:
    """Refuse a proposal, also one that was approved: its orders are refused from now on."""
    _decide(site, identity, "refused", as_json)


@app.command(epilog=examples("fedaux site log --verify", "fedaux site log --verify --head 12:9f31…"))
def log(
    site: Folder = Path(),
    verify: Annotated[bool, typer.Option("--verify", help="Say only whether the log is whole, and its head.")] = False,
    head: Annotated[str, typer.Option(help="A head that was noted earlier: the log must go on from there.")] = "",
    as_json: Json = False,
) -> None:
    """Show proposals, decisions and answers. A log that was changed, cut or reordered is an error."""
    found = _log(site)
    entries, now = found.entries(), found.head
    if head:
        found.check_head(head)
    lines = [] if verify else [f"{one.time}  {one.event:9}  {one.id}  {one.by}" for one in entries]
    facts = {"head": now, "entries": [vars(one) for one in entries]}
    print_result(as_json, facts, "\n".join([*lines, f"the log is whole; its head, to be noted elsewhere: {now}"]))


def _decide(site: Path, identity: str, event: str, as_json: bool) -> None:
    _log(site).decide(identity, event, getpass.getuser())
    print_result(as_json, {"id": identity, "decision": event}, f"{identity} is {event}.")


def _facts(facts: dict[str, object]) -> str:
    return "\n".join(f"    {name} = {value}" for name, value in facts.items() if name != "rule" and value != "")


def _log(site: Path) -> ApprovalLog:
    from fedaux.client.approvals import ApprovalLog
    from fedaux.deploy.layout import read_env

    read_env(site / "site.env")  # or it is no site's folder
    return ApprovalLog(site / "vault")

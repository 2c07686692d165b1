"""`fedaux deploy init | key | check`: certificates, keys, scripts and checks for real sites."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedaux.cli.common import Json, console_for, examples, print_json, print_result
from fedaux.core.errors import Exit

app = typer.Typer(no_args_is_help=True, help="Real sites: certificates, keys, settings, scripts, and a check.")

MARKS = {True: "[green]ok[/green]     ", False: "[bold red]problem[/bold red]", None: "[yellow]unknown[/yellow]"}


@app.command(
    epilog=examples(
        "fedaux deploy init try-out --site berlin --site paris     # on this machine, with digits",
        "fedaux deploy init hospitals --site berlin --site paris --host fl.example.org --config my.toml",
    )
)
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for everything.")],
    site: Annotated[list[str], typer.Option(help="Name of a site; once for each.")],
    host: Annotated[str, typer.Option(help="Name or IP address at which sites find the server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 8443,
    config: Annotated[Path | None, typer.Option(help="A TOML file to start from; without it, digits stand in.")] = None,
    as_json: Json = False,
) -> None:
    """Write all that a server and its sites need to start: TLS certificates, keys, settings, scripts, a README."""
    from fedaux.config.schema import Config
    from fedaux.deploy.layout import Address
    from fedaux.deploy.layout import init as write
    from fedaux.deploy.settings import demo_config

    write(folder, site, Address(host, port), Config.load(config) if config else demo_config())
    readme = folder / "README.md"
    facts = {"folder": str(folder), "sites": site, "readme": str(readme)}
    print_result(as_json, facts, f"{readme} says what to do next, in order.")


@app.command(epilog=examples("fedaux deploy key hospitals/sites/berlin"))
def key(folder: Annotated[Path, typer.Argument(help="The folder of a site.")], as_json: Json = False) -> None:
    """Make a site's key pair. Only key.pub is for the server; key never leaves the site."""
    from fedaux.deploy.certificates import generate_key_pair

    public = generate_key_pair(folder)
    print_result(as_json, {"public_key": str(public)}, f"Send {public} to the server, and nothing else.")


@app.command(epilog=examples("fedaux deploy check hospitals/sites/berlin     # at the site, before it takes part"))
def check(folder: Annotated[Path, typer.Argument(help="The folder of a site.")], as_json: Json = False) -> None:
    """Find what is wrong with a site before it takes part: certificate, server, clock, key, data, disk, budget."""
    from fedaux.deploy.checks import check_site

    sys.path.append(str(folder.absolute()))  # for a module:function beside the settings, as supernode.sh has it
    findings, console = [], console_for(as_json)
    for found in check_site(folder):
        findings.append(found)
        console.print(f"{MARKS[found.ok]}  {escape(found.name)}: {escape(found.detail)}", soft_wrap=True)
        if found.remedy:
            console.print(f"         → {escape(found.remedy)}", soft_wrap=True)
    if as_json:
        print_json({"findings": [vars(one) for one in findings]})
    if any(one.ok is False for one in findings):
        raise typer.Exit(Exit.NEGATIVE)

"""`fedaux deploy`: certificates, keys, scripts and checks for real sites, and who takes
part.
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

app = typer.Typer(
    no_args_is_help=True,
    help="Real sites: certificates, keys, settings, scripts, and a check.",
)

StuckAfter = Annotated[
    float | None,
    typer.Option(min=1, help="Seconds without progress; else as the run has measured."),
]
WatchedFolder = Annotated[
    Path,
    typer.Argument(
        help="The folder of the deployment, of its server, or of a run that merges regions."
    ),
]
RunHome = Annotated[
    Path | None,
    typer.Option(
        help="The run's folder, if it is not server/run; of a regional server: OUT/regions/1of2, say."
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
            "fedaux deploy init try-out --site berlin --site paris     # on this "
            "machine, with digits"
        ),
        (
            "fedaux deploy init hospitals --site berlin --site paris --host "
            "fl.example.org --config my.toml"
        ),
        (
            "fedaux deploy init try-out --config images.toml --data berlin=scans/b "
            "--data paris=scans/p --test scans/test"
        ),
    )
)
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for everything.")],
    site: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a site; once for each. Default: federation.sites of --config."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Name or IP address at which sites find the server.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 8443,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file to start from; without it, digits stand in."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="Where a site's records are; once for each site."
        ),
    ] = None,
    test: Annotated[
        str, typer.Option(metavar="PATH", help="The server's labelled test data.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Write all that a server and its sites need to start: TLS certificates, keys,
    settings, scripts, a README.
    """
    from fedaux.config.schema import Config
    from fedaux.deploy.layout import Address, demo_config, write_layout
    from fedaux.deploy.site_data import parse_paths, with_own_data

    base = demo_config()
    if config is not None:
        base = Config.load(config)
    named = [word.partition("=")[0] for word in data or []]
    sites = site or list(dict.fromkeys(filter(None, named)))
    sites = sites or list(base.federation.sites)
    paths = parse_paths(data or [], sites)
    server_base, site_bases = with_own_data(base, sites, paths, test)
    write_layout(folder, sites, Address(host, port), server_base, site_bases)
    readme = folder / "README.md"
    script = folder / "try-all.sh"
    result = {"folder": str(folder), "sites": sites, "readme": str(readme)}
    lines = [f"{readme} says what to do next, in order."]
    if script.exists():
        lines.append(f"{script} plays the server and all sites on this machine.")
    print_result(as_json, result, *lines)


@app.command(epilog=examples("fedaux deploy key hospitals/sites/berlin"))
def key(
    folder: Annotated[Path, typer.Argument(help="The folder of a site.")],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make another; the old one is kept as key.old."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a site's key pair. Only key.pub is for the server; key never leaves the
    site.
    """
    from fedaux.deploy.certificates import generate_key_pair, site_fingerprint

    public = generate_key_pair(folder, replace)
    result = {
        "public_key": str(public),
        "fingerprint": site_fingerprint(public.read_bytes()),
    }
    print_result(
        as_json,
        result,
        f"Send {public} to the server, and nothing else.",
        f"Its fingerprint, to compare by telephone: {result['fingerprint']}",
    )


Deployment = Annotated[Path, typer.Argument(help="The folder of the deployment.")]
SiteName = Annotated[str, typer.Argument(help="The name of the site.")]


@app.command(
    "add-site",
    epilog=examples(
        (
            "fedaux deploy add-site hospitals oslo     # the site makes its key; "
            "rotate-key lets it in"
        ),
        "fedaux deploy add-site hospitals oslo --key key-of-oslo.pub",
    ),
)
def add(
    folder: Deployment,
    name: SiteName,
    key: Annotated[
        Path | None,
        typer.Option(help="Its public key, if the site has made one already."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the folder of another site, and make it a member: it takes part from the
    next start of the run.
    """
    from fedaux.deploy.certificates import site_fingerprint
    from fedaux.deploy.link import ControlLink
    from fedaux.deploy.membership import add_site

    registered = add_site(folder, name, ControlLink(folder / "server"), key)
    site = folder / "sites" / name
    digest = ""
    if key is not None:
        digest = site_fingerprint(key.read_bytes())
    if registered:
        note = f"Its key is registered: {digest}, which is what the site must have read to you"
    elif key:
        note = f"The server is down: call server/register.sh when it is up, and compare the key: {digest}"
    else:
        note = (
            f"It makes its key with `fedaux deploy key {name}` and sends key.pub, "
            f"which `fedaux deploy rotate-key {folder} {name} --key key.pub` lets in"
        )
    result = {
        "site": name,
        "folder": str(site),
        "registered": registered,
        "fingerprint": digest,
    }
    print_result(as_json, result, f"{site} is for the new site. {note}.")


@app.command(
    epilog=examples("fedaux deploy register hospitals     # as server/register.sh does")
)
def register(folder: WatchedFolder = Path(), as_json: Json = False) -> None:
    """Let in the sites whose public keys are in server/keys. One name has one key: any
    other is shut out.
    """
    from fedaux.deploy.link import ControlLink
    from fedaux.deploy.membership import register_keys
    from fedaux.deploy.status import server_folder

    server = server_folder(folder)
    sites: dict[str, dict[str, object]] = {}
    lines = []
    for name, (digest, new) in register_keys(server, ControlLink(server)).items():
        sites[name] = {"fingerprint": digest, "new": new}
        verb = "registered" if new else "was registered"
        lines.append(f"{name}: {verb}, {digest}")
    if not lines:
        lines = [f"there are no keys in {server / 'keys'}"]
    print_result(as_json, {"sites": sites}, "\n".join(lines))


@app.command(
    epilog=examples(
        "fedaux deploy roster roster.json --site berlin     # at the site, which got "
        "the file"
    )
)
def roster(
    file: Annotated[
        Path, typer.Argument(help="server/roster.json, as the server has sent it.")
    ],
    site: Annotated[Path, typer.Option(help="The folder of the site.")] = Path(),
    yes: Annotated[
        bool, typer.Option("--yes", help="Install it without asking.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a new roster of secure sums changes, and pin it at the site. Owners
    compare its fingerprint.
    """
    from fedaux.deploy.rosters import compare_roster, install_roster

    change = compare_roster(site, file)
    if not yes:
        console_for(as_json).print(change.text, soft_wrap=True)
        typer.confirm(
            "Have the other sites read the same fingerprint to you?",
            abort=True,
            err=True,
        )
    install_roster(site, file)
    note = f"{site / 'vault'} has the new roster."
    if yes:  # the change was not shown yet
        note = change.text
    print_result(as_json, vars(change), note)


@app.command("remove-site", epilog=examples("fedaux deploy remove-site hospitals oslo"))
def remove(folder: Deployment, name: SiteName, as_json: Json = False) -> None:
    """Shut a site's key out at once; the run goes on without it. Nothing at the site is
    changed.
    """
    from fedaux.deploy.link import ControlLink
    from fedaux.deploy.membership import remove_site

    remove_site(folder, name, ControlLink(folder / "server"))
    print_result(
        as_json,
        {"site": name},
        f"{name} is no longer a member, and its key opens nothing.",
    )


@app.command(
    "rotate-key",
    epilog=examples("fedaux deploy rotate-key hospitals berlin --key berlin/key.pub"),
)
def rotate(
    folder: Deployment,
    name: SiteName,
    key: Annotated[
        Path | None, typer.Option(help="Its new public key; else that in sites/NAME.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Register the public key that a site has made (`fedaux deploy key`), in place of
    the old one if it had any.
    """
    from fedaux.deploy.link import ControlLink
    from fedaux.deploy.membership import rotate_key

    public_key = key or folder / "sites" / name / "key.pub"
    digest = rotate_key(folder, name, public_key, ControlLink(folder / "server"))
    note = f"{name} has the key {digest}, if that is what the site has read to you. It restarts its supernode.sh."
    print_result(as_json, {"site": name, "fingerprint": digest}, note)


@app.command(
    epilog=examples(
        "fedaux deploy renew hospitals",
        "fedaux deploy renew hospitals --ca /media/safe/ca",
    )
)
def renew(
    folder: Deployment,
    ca: Annotated[
        Path | None, typer.Option(help="Folder with ca.key, if it is kept elsewhere.")
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, help="For which the certificate is valid.")
    ] = 1825,
    ask_password: Annotated[
        bool, typer.Option("--password", help="Ask for the password of ca.key.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a new server certificate for the same hosts. Sites trust it as they did the
    old one.
    """
    from fedaux.deploy.membership import renew as issue

    password = None
    if ask_password:
        password = typer.prompt("password of ca.key", hide_input=True).encode()
    end = issue(folder, ca, days, password)
    print_result(
        as_json,
        {"valid_until": end},
        f"valid until {end}: restart superlink.sh. Sites need nothing.",
    )


@app.command(
    epilog=examples(
        (
            "fedaux deploy status hospitals                  # until Ctrl-C; from its "
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
    """Show what the run and its sites are doing. Ends with 1 if a run makes no
    progress, or anybody is not there.
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
        str, typer.Option(help="Address to listen at; nobody is asked for a password.")
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
    """Find what is wrong with a site before it takes part: certificate, server, clock,
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
    """Find what would go wrong at the server before anything is sent: data,
    pre-training, disk, and who is there.
    """
    from fedaux.deploy.link import ControlLink
    from fedaux.deploy.preflight import preflight as checks
    from fedaux.deploy.status import server_folder

    server = server_folder(folder)
    _show(server, checks(server, ControlLink(server)), as_json)


def _show(folder: Path, checks: Iterable[CheckResult], as_json: bool) -> None:
    """Print each finding as it is made; end with 1 if there is a problem."""
    # for a module:function beside the settings, as supernode.sh has it
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
    """For an owner whose newest vault is lost for good: what is missing counts as all
    that was left of the budget.

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

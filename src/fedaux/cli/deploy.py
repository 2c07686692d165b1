"""`fedaux deploy`: certificates, keys and scripts of real sites; who takes part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaux.cli.common import (
    SUGGEST_COMMANDS,
    Json,
    console_for,
    examples,
    print_result,
)

if TYPE_CHECKING:
    pass
from fedaux.cli.deploy_watch import WatchedFolder
from fedaux.cli.deploy_watch import app as watching

app = typer.Typer(
    suggest_commands=SUGGEST_COMMANDS,
    no_args_is_help=True,
    help="Real sites: certificates, keys, settings, scripts, and a check.",
)


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
        (
            "fedaux deploy init hospitals --config images.toml --data berlin=scans/b "
            "--data paris=scans/p     # tested at the sites"
        ),
    )
)
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for everything.")],
    site: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a site, once for each. Default: federation.sites of --config."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Name or IP address at which sites find the server.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 8443,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file to start from. Without it, digits are used."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="Where a site's records are, once for each site."
        ),
    ] = None,
    test: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help=(
                "The server's labelled test data. Without any, the sites test the "
                "final model."
            ),
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write everything that a server and its sites need: TLS certificates, keys,
    settings, scripts, a README.
    """
    from fedaux.config.schema import Config
    from fedaux.deploy.layout import (
        Address,
        demo_config,
        percent_held_out,
        write_layout,
    )
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
    held_out = percent_held_out(server_base)
    result = {
        "folder": str(folder),
        "sites": sites,
        "readme": str(readme),
        "site_test_fraction": server_base.data.site_test_fraction,
        "look_epsilon": server_base.privacy.look_epsilon,
    }
    lines = [f"{readme} lists what to do next, in order."]
    if held_out:
        lines.append(
            f"Each site holds out {held_out} of its records, and tests the final model "
            f"on them at ε = {server_base.privacy.look_epsilon:g}."
        )
    if script.exists():
        lines.append(f"{script} plays the server and all sites on this machine.")
    print_result(as_json, result, *lines)


@app.command(epilog=examples("fedaux deploy key hospitals/sites/berlin"))
def key(
    folder: Annotated[Path, typer.Argument(help="The folder of a site.")],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make another. The old one is kept as key.old."),
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
            "fedaux deploy add-site hospitals oslo     # the site makes its key, "
            "then rotate-key"
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
        note = (
            f"Its key is registered: {digest}, which is what the site must have read "
            "to you"
        )
    elif key:
        note = (
            "The server is down: call server/register.sh when it is up, and compare "
            f"the key: {digest}"
        )
    else:
        note = (
            f"It makes its key with `fedaux deploy key {name}` and sends key.pub, "
            f"which `fedaux deploy rotate-key {folder} {name} --key key.pub` authorizes"
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
    """Authorize the sites whose public keys are in server/keys. Each name has one key,
    and any other key is revoked.
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
    """Revoke a site's key at once. The run continues without the site, and its folder
    stays as it is.
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
        Path | None,
        typer.Option(help=("Its new public key. Default: the key in sites/NAME.")),
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
    note = (
        f"{name} has the key {digest}, if that is what the site has read to you. It "
        "restarts its supernode.sh."
    )
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
        int, typer.Option(min=1, help="How long the certificate is valid.")
    ] = 1825,
    ask_password: Annotated[
        bool, typer.Option("--password", help="Ask for the password of ca.key.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a new server certificate for the same hosts. Sites trust it without a change."""
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


# after those above, in the help too: `add_typer` would put them first
app.registered_commands += watching.registered_commands

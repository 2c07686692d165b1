"""Sites that join and leave, keys that are replaced, and a server certificate that is
renewed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomlkit
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedaux.config.schema import Config
from fedaux.config.sections import FederationConfig
from fedaux.core.io import write_atomically
from fedaux.deploy.certificates import (
    SERVER_DAYS,
    IssuedCertificate,
    Key,
    PublicKeyError,
    issue_server_certificate,
    node_fingerprint,
    site_fingerprint,
)
from fedaux.deploy.env import DeployError, read_env
from fedaux.deploy.layout import Address, write_site
from fedaux.deploy.link import ControlLink, LinkError
from fedaux.deploy.rosters import write_server_roster

REMOVED = "removed"  # below server/keys: public keys that no longer count


def add_site(
    folder: Path, name: str, link: ControlLink, public_key: Path | None = None
) -> bool:
    """Write a site's folder, without a key, and make it a member; return whether its
    key is registered.

    A site makes its own key. Without `public_key` `rotate_key` authorizes it later.
    """
    folder = _deployment(folder)
    FederationConfig(sites=(name,))  # validates the name
    sites = _members(folder)
    server = folder / "server"
    if name in sites:
        raise DeployError(
            f"Cannot add {name}: there is a site {name} already. Use rotate-key to "
            "give it another key."
        )
    if (folder / "sites" / name).exists():
        raise DeployError(
            f"Cannot add {name}: {folder / 'sites' / name} is there already, perhaps "
            "of a site that has left. Move it away first."
        )
    if public_key is not None:
        _read_public_key(public_key)
    base = _without_test_data(Config.load(server / "fedaux.toml"))
    authority = (server / "ca.crt").read_bytes()
    write_site(folder / "sites" / name, name, _address(folder), base, authority)
    _set_members(folder, [*sites, name])
    if public_key is None:
        return False
    write_atomically(server / "keys" / f"{name}.pub", public_key.read_bytes())
    write_server_roster(server)
    try:
        register_key(server / "keys" / f"{name}.pub", name, link)
    except LinkError:
        return False
    return True


def register_keys(server: Path, link: ControlLink) -> dict[str, tuple[str, bool]]:
    """Register all keys in the server's folder; return the fingerprint of each site,
    and whether it is new.
    """
    write_server_roster(server)
    registered = {}
    for path in sorted((server / "keys").glob("*.pub")):
        new = register_key(path, path.stem, link)
        registered[path.stem] = (site_fingerprint(path.read_bytes()), new)
    return registered


def register_key(public_key: Path, name: str, link: ControlLink) -> bool:
    """Make this the one key of a name; return whether the server did not know it."""
    wanted = node_fingerprint(public_key.read_bytes())
    named = [node for node in link.nodes() if node.name == name]
    for node in named:
        if node.key != wanted:
            link.unregister(node.node_id)
    if any(node.key == wanted for node in named):
        return False
    link.register(public_key, name)
    return True


def remove_site(folder: Path, name: str, link: ControlLink) -> None:
    """Revoke a site's key at once, and remove its name from the next start of the
    run.
    """
    folder = _deployment(folder)
    sites = _members(folder, name)
    if len(sites) == 1:
        raise DeployError(
            f"Cannot remove {name}: {name} is the only site. Add another one first."
        )
    _unregister(link, name)
    _retire(folder / "server" / "keys" / f"{name}.pub")
    write_server_roster(folder / "server")
    _set_members(folder, [site for site in sites if site != name])


def rotate_key(folder: Path, name: str, public_key: Path, link: ControlLink) -> str:
    """Give a site a key, or another one: from now on this alone is accepted. Return its
    fingerprint.

    Called again, it does what an earlier call has left undone.
    """
    folder = _deployment(folder)
    registered_key = folder / "server" / "keys" / f"{name}.pub"
    _members(folder, name)
    if not public_key.is_file():
        raise DeployError(
            f"Cannot register a key: {public_key} is not there. Ask the site for it, "
            "which makes one with `fedaux deploy key FOLDER --replace`."
        )
    wanted = _read_public_key(public_key)
    is_known = (
        registered_key.is_file()
        and site_fingerprint(registered_key.read_bytes()) == wanted
    )
    if not is_known:
        _unregister(link, name)
        _retire(registered_key)
        write_atomically(registered_key, public_key.read_bytes())
    write_server_roster(folder / "server")
    register_key(registered_key, name, link)
    return wanted


def renew(
    folder: Path,
    authority: Path | None = None,
    days: int = SERVER_DAYS,
    password: bytes | None = None,
) -> str:
    """Issue a new server certificate for the same hosts from the authority that sites
    trust; return its expiry date.

    `authority` is a folder with ca.key and ca.crt, for an authority that is kept
    elsewhere.
    """
    folder = _deployment(folder)
    home = authority or folder / "ca"
    server = folder / "server"
    try:
        key = serialization.load_pem_private_key(
            (home / "ca.key").read_bytes(), password
        )
    except FileNotFoundError as error:
        raise DeployError(
            f"Cannot renew the certificate: {home / 'ca.key'} is not there. Use --ca "
            "to name the folder it is kept in."
        ) from error
    except (TypeError, ValueError) as error:
        raise DeployError(
            f"Cannot renew the certificate: {home / 'ca.key'} cannot be read "
            f"({error}). Check its password, or restore the file."
        ) from error
    if not isinstance(key, Key):
        raise DeployError(
            f"Cannot renew the certificate: {home / 'ca.key'} is not a key of `fedaux "
            "deploy init`. Use --ca to name the folder with the right one."
        )
    ca_certificate = x509.load_pem_x509_certificate((server / "ca.crt").read_bytes())
    if ca_certificate.public_key() != key.public_key():
        raise DeployError(
            f"Cannot renew the certificate: {home / 'ca.key'} is not the key of "
            f"{server / 'ca.crt'}, which sites trust. Use --ca to name the folder with "
            "the right one."
        )
    old = x509.load_pem_x509_certificate((server / "server.pem").read_bytes())
    new = issue_server_certificate(IssuedCertificate(ca_certificate, key), old, days)
    write_atomically(server / "server.key", new.key_pem(), private=True)
    write_atomically(server / "server.pem", new.certificate_pem())
    return new.certificate.not_valid_after_utc.date().isoformat()


def _deployment(folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    if not (folder / "server" / "fedaux.toml").is_file():
        raise DeployError(
            f"Cannot change the deployment: {folder} holds no deployment "
            "(server/fedaux.toml is missing). Name its folder, or write one with "
            "`fedaux deploy init`."
        )
    return folder


def _members(folder: Path, name: str = "") -> tuple[str, ...]:
    """Return the sites in the server's settings. `name` must be among them."""
    sites = Config.load(folder / "server" / "fedaux.toml").federation.sites
    if name and name not in sites:
        raise DeployError(
            f"Cannot find the site: there is no site {name}. Choose from "
            f"{', '.join(sites)}."
        )
    return sites


def _set_members(folder: Path, sites: Sequence[str]) -> None:
    """Replace the list of sites in the text of the server's settings, and leave
    everything else as it is.
    """
    path = folder / "server" / "fedaux.toml"
    document: Any = tomlkit.parse(path.read_text(encoding="utf-8"))
    if "sites" not in document.get("federation", {}):
        raise DeployError(
            f"Cannot change the sites: {path} has no `sites = [...]` below "
            f"[federation]. Write {json.dumps(list(sites))} there."
        )
    document["federation"]["sites"] = list(sites)
    write_atomically(path, tomlkit.dumps(document).encode())


def _read_public_key(path: Path) -> str:
    """Return the fingerprint of the public key in a file."""
    try:
        return site_fingerprint(path.read_bytes())
    except (OSError, PublicKeyError) as error:
        raise DeployError(
            f"Cannot register a key: {path} is not the key.pub that `fedaux deploy "
            f"key` has made at the site ({error}). Ask the site for that file."
        ) from error


def _without_test_data(server: Config) -> Config:
    """Return settings for a site from the server's, whose test records are not the
    site's.
    """
    options = tuple(
        (key, value)
        for key, value in server.data.options
        if key not in ("split", "test")
    )
    return replace(server, data=replace(server.data, path="", options=options))


def _unregister(link: ControlLink, name: str) -> None:
    for node in link.nodes():
        if node.name == name:
            link.unregister(node.node_id)


def _retire(key: Path) -> None:
    """Keep an old public key where register.sh does not look."""
    if key.is_file():
        write_atomically(key.parent / REMOVED / key.name, key.read_bytes())
        key.unlink()


def _address(folder: Path) -> Address:
    """Return the address at which sites reach the server."""
    env = folder / "server" / "server.env"
    public = read_env(env, ()).get("PUBLIC")
    if public:
        return Address.of(public)
    # of an older release: the sites were told
    for path in sorted((folder / "sites").glob("*/site.env")):
        return Address.of(read_env(path)["SERVER"])
    raise DeployError(
        f"Cannot find the server's address: {env} does not say where sites find the "
        "server. Write PUBLIC=host:port there."
    )

"""`fedaux deploy init`: writes a folder for the server and one for each site, with all that they need to start."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.config.sections import FederationConfig
from fedaux.config.toml import to_commented_toml
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.deploy import scripts
from fedaux.deploy.certificates import create_authority, generate_key_pair, issue_server_certificate
from fedaux.deploy.settings import SERVER_HEAD, SERVER_NOTES, SITE_HEAD, server_config, site_config, site_notes


class DeployError(FedauxError, ValueError):
    """A deployment that cannot be written with these arguments."""

    code = Exit.FOLDER


@dataclass(frozen=True)
class Address:
    """The server's address: `public` for sites, and `local` on its own machine, from which alone it is controlled."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:.]+", self.host):
            raise DeployError(f"--host {self.host!r} is neither a name nor an IP address")
        if not 1 <= self.port <= 65535:
            raise DeployError(f"--port must lie between 1 and 65535, not {self.port}")

    @property
    def public(self) -> str:
        return _host_port(self.host, self.port)

    @property
    def local_host(self) -> str:
        """The loopback address by which the server's own machine reaches it."""
        return self.host if self._loopback else "::1" if ":" in self.host else "127.0.0.1"

    @property
    def local(self) -> str:
        return _host_port(self.local_host, self.port)

    @property
    def bind(self) -> str:
        """The loopback interface for a deployment on one machine, else all interfaces."""
        if self._loopback or self.host == "localhost":
            return self.local_host
        return "::" if ":" in self.host else "0.0.0.0"

    @property
    def _loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def init(folder: Path, sites: Sequence[str], address: Address, base: Config) -> None:
    """Write everything. Keys of sites are made as well, for a first try; a real site makes its own."""
    folder = folder.expanduser().absolute()
    FederationConfig(sites=tuple(sites))  # validates the names
    if not sites:
        raise DeployError("a deployment needs sites: --site berlin --site paris")
    if re.search(r'["\\\x00-\x1f]', str(folder)):
        raise DeployError(f"{str(folder)!r}: Flower does not accept paths with quotes, backslashes or line breaks")
    taken = [name for name in ("ca", "server", "sites") if (folder / name).exists()]
    if taken:
        raise DeployError(f"{folder} already holds a deployment ({', '.join(taken)}); choose another folder")
    authority = create_authority()
    hosts = list(dict.fromkeys([address.host, address.local_host, "localhost"]))
    server = issue_server_certificate(authority, hosts)
    _private_folder(folder / "ca")
    write_atomically(folder / "ca" / "ca.key", authority.key_pem(), private=True)
    write_atomically(folder / "ca" / "ca.crt", authority.certificate_pem())
    for name in sites:
        write_site(folder / "sites" / name, name, address, base, authority.certificate_pem())
    _write_server(folder / "server", sites, address, base, authority.certificate_pem())
    write_atomically(folder / "server" / "server.pem", server.certificate_pem())
    write_atomically(folder / "server" / "server.key", server.key_pem(), private=True)
    for name in sites:
        public = (folder / "sites" / name / "key.pub").read_bytes()
        write_atomically(folder / "server" / "keys" / f"{name}.pub", public)
    _write(folder / "systemd", scripts.systemd_units(folder, Path(sys.executable).parent, getpass.getuser()))
    _write(folder / "monitoring", scripts.monitoring_files())
    compose = scripts.render("compose.yaml", sites=sites, user=os.getuid(), group=os.getgid())
    readme = scripts.render("README.md", sites=sites, server=address.public)
    _write(folder, {"compose.yaml": compose, "README.md": readme})


def write_site(folder: Path, name: str, address: Address, base: Config, authority: bytes) -> None:
    _private_folder(folder)
    generate_key_pair(folder)
    write_atomically(folder / "ca.crt", authority)
    env = scripts.render("site.env", name=name, address=address)
    settings = to_commented_toml(site_config(base, name), SITE_HEAD.format(name=name), site_notes(base))
    _write(folder, {"site.env": env, "site.toml": settings})
    _write_scripts(folder, scripts.SITE_SCRIPTS, "site.env")


def _write_server(folder: Path, sites: Sequence[str], address: Address, base: Config, authority: bytes) -> None:
    _private_folder(folder)
    write_atomically(folder / "ca.crt", authority)
    write_atomically(folder / "superexec.secret", secrets.token_hex(32).encode(), private=True)
    files = {
        "server.env": scripts.render("server.env", address=address),
        "fedaux.toml": to_commented_toml(server_config(base, sites), SERVER_HEAD, SERVER_NOTES),
        "flwr-home/config.toml": scripts.render("superlink.toml", address=address, folder=folder),
        "app/pyproject.toml": scripts.render("app.toml", folder=folder, version=version("fedaux")),
    }
    _write(folder, files)
    _write_scripts(folder, scripts.SERVER_SCRIPTS, "server.env")


def _write_scripts(folder: Path, names: Sequence[str], env: str) -> None:
    _write(folder, {name: scripts.render(name, env=env) for name in names}, mode=0o755)


def _write(folder: Path, files: Mapping[str, str], mode: int = 0o644) -> None:
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
        (folder / name).chmod(mode)


def _private_folder(folder: Path) -> None:
    """Readable by its owner only: it will hold keys, budgets and records."""
    folder.mkdir(parents=True, mode=0o700)


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

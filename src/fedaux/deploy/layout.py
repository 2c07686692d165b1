"""`fedaux deploy init`: writes a folder for the server and one for each site, with all
that they need to start.

Scripts, units and comments are in `templates/`. `deploy.env` reads back what `site.env`
and `server.env` say.
"""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import secrets
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, FederationConfig
from fedaux.config.sends import needed_by
from fedaux.config.toml import to_commented_toml, toml_value
from fedaux.core.io import write_atomically
from fedaux.deploy.certificates import (
    create_authority,
    generate_key_pair,
    issue_server_certificate,
)
from fedaux.deploy.env import DeployError
from fedaux.deploy.rosters import write_server_roster
from fedaux.privacy.roster import ROSTER_FILE, write_roster

SERVER_SCRIPTS = (
    "superlink.sh",
    "superexec.sh",
    "register.sh",
    "look.sh",
    "run.sh",
    "metrics.sh",
    "backup.sh",
)
MONITORING = ("prometheus.yml", "alerts.yml", "dashboard.json")
SITE_SCRIPTS = ("supernode.sh", "backup.sh")
SYSTEM_USER = "fedaux"  # of a deployment that root has written
TEMPLATES = files("fedaux.deploy") / "templates"


@dataclass(frozen=True)
class Address:
    """The server's address: `public` for sites, and `local` on its own machine, from
    which alone it is controlled.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:.]+", self.host):
            raise DeployError(
                f"Cannot use --host {self.host!r}: it is neither a name nor an IP "
                "address. Correct it."
            )
        if not 1 <= self.port <= 65535:
            raise DeployError(
                f"Cannot use --port {self.port}: it must lie between 1 and 65535. "
                "Correct it."
            )

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse host:port."""
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))

    @property
    def public(self) -> str:
        return _host_port(self.host, self.port)

    @property
    def local_host(self) -> str:
        """The loopback address by which the server's own machine reaches it."""
        if self._loopback:
            return self.host
        if ":" in self.host:
            return "::1"
        return "127.0.0.1"

    @property
    def local(self) -> str:
        return _host_port(self.local_host, self.port)

    @property
    def bind(self) -> str:
        """The loopback interface for a deployment on one machine, else all
        interfaces.
        """
        if self.one_machine:
            return self.local_host
        if ":" in self.host:
            return "::"
        return "0.0.0.0"

    @property
    def one_machine(self) -> bool:
        """Whether only this machine can reach the server."""
        return self._loopback or self.host == "localhost"

    @property
    def _loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


SCHEMA_FILE = "schema.toml"
_Table = TypeVar("_Table", DataConfig, AuxConfig)


def write_layout(
    folder: Path,
    sites: Sequence[str],
    address: Address,
    base: Config,
    own: Mapping[str, Config] | None = None,
) -> None:
    """Write a deployment. Only if all of it is on this machine are keys of sites made:
    a real site makes its own.

    `own` has the settings of sites that differ from `base`, such as their data.
    """
    folder = folder.expanduser().absolute()
    FederationConfig(sites=tuple(sites))  # validates the names
    if not sites:
        raise DeployError(
            "Cannot write a deployment: a deployment needs sites. Name them, such as "
            "--site berlin --site paris."
        )
    if re.search(r'["\\\x00-\x1f]', str(folder)):
        raise DeployError(
            f"Cannot write a deployment to {str(folder)!r}: Flower does not accept "
            "paths with quotes, backslashes or line breaks. Choose another folder."
        )
    taken = [name for name in ("ca", "server", "sites") if (folder / name).exists()]
    if taken:
        raise DeployError(
            f"Cannot write a deployment: {folder} already holds a deployment "
            f"({', '.join(taken)}). Choose another folder."
        )
    authority = create_authority()
    hosts = list(dict.fromkeys([address.host, address.local_host, "localhost"]))
    certificate = issue_server_certificate(authority, hosts)
    server = folder / "server"
    ca_certificate = authority.certificate_pem()
    _private_folder(folder / "ca")
    write_atomically(folder / "ca" / "ca.key", authority.key_pem(), private=True)
    write_atomically(folder / "ca" / "ca.crt", ca_certificate)
    _write_server(server, sites, address, base, ca_certificate)
    write_atomically(server / "server.pem", certificate.certificate_pem())
    write_atomically(server / "server.key", certificate.key_pem(), private=True)
    for name in sites:
        site = folder / "sites" / name
        site_base = (own or {}).get(name, base)
        write_site(site, name, address, site_base, ca_certificate)
        if address.one_machine:
            public_key = generate_key_pair(site)
            copy = server / "keys" / f"{name}.pub"
            write_atomically(copy, public_key.read_bytes())
    if address.one_machine:
        _write_rosters(folder, sites)
    programs = Path(sys.executable).parent
    units = systemd_units(folder, programs, getpass.getuser())
    _write(folder / "systemd", units)
    _write(folder / "monitoring", monitoring_files())
    compose = render("compose.yaml", sites=sites, user=os.getuid(), group=os.getgid())
    readme = render(
        "README.md",
        sites=sites,
        address=address,
        held_out=percent_held_out(base),
        look_epsilon=base.privacy.look_epsilon,
    )
    _write(folder, {"compose.yaml": compose, "README.md": readme})
    if address.one_machine:
        script = render("try-all.sh", sites=sites)
        _write(folder, {"try-all.sh": script}, mode=0o755)


def _write_rosters(folder: Path, sites: Sequence[str]) -> None:
    """Pin the roster everywhere, where server and sites are one machine's."""
    roster = write_server_roster(folder / "server")
    for name in sites:
        write_roster(folder / "sites" / name / "vault" / ROSTER_FILE, roster)


def write_site(
    folder: Path, name: str, address: Address, base: Config, authority: bytes
) -> None:
    _private_folder(folder)
    write_atomically(folder / "ca.crt", authority)
    _write(folder, schema_file(base))
    config = with_own_schema(site_config(base, name))
    if not address.one_machine:  # a real site: its owner decides
        config = replace(config, federation=replace(config.federation, approval="ask"))
    head = comments("site")["head"].format(name=name)
    settings = to_commented_toml(config, head, site_notes(base))
    env = render("site.env", name=name, address=address)
    _write(folder, {"site.env": env, "site.toml": settings})
    scripts = {script: render(script, env="site.env") for script in SITE_SCRIPTS}
    _write(folder, scripts, mode=0o755)


def _write_server(
    folder: Path, sites: Sequence[str], address: Address, base: Config, authority: bytes
) -> None:
    _private_folder(folder)
    (folder / "keys").mkdir()
    write_atomically(folder / "ca.crt", authority)
    write_atomically(
        folder / "superexec.secret", secrets.token_hex(32).encode(), private=True
    )
    notes = comments("server")
    config = with_own_schema(server_config(base, sites))
    settings = schema_file(base) | {
        "server.env": render("server.env", address=address),
        "fedaux.toml": to_commented_toml(config, notes["head"], notes),
        "app/pyproject.toml": render(
            "app.toml", folder=folder, version=version("fedaux")
        ),
    }
    _write(folder, settings)
    scripts = {script: render(script, env="server.env") for script in SERVER_SCRIPTS}
    _write(folder, scripts, mode=0o755)


def _write(folder: Path, contents: Mapping[str, str], mode: int = 0o644) -> None:
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
        (folder / name).chmod(mode)


def _private_folder(folder: Path) -> None:
    """Make a folder that only its owner can read: it will hold keys, budgets and
    records.
    """
    folder.mkdir(parents=True, mode=0o700)


def _host_port(host: str, port: int) -> str:
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


# Texts, from the files in `templates/`


@dataclass(frozen=True)
class Service:
    """A systemd service. It may write only to `home` below the deployment's folder."""

    what: str
    home: str
    script: str
    devices: bool = False  # trains, perhaps on a GPU
    local_only: bool = False  # speaks with this machine alone


SERVICES = {
    "fedaux-superlink": Service("where sites call in", "server", "superlink.sh"),
    "fedaux-superexec": Service(
        "the server's part of an app", "server", "superexec.sh", devices=True
    ),
    "fedaux-metrics": Service(
        "metrics for Prometheus", "server", "metrics.sh", local_only=True
    ),
    "fedaux-site@": Service("site %i", "sites/%i", "supernode.sh", devices=True),
}


def systemd_units(folder: Path, programs: Path, user: str) -> dict[str, str]:
    """Return units for the server, and a template for any site, `fedaux-site@NAME`.
    None of them runs as root.
    """
    # systemd expands % within quotes
    path = str(folder).replace("%", "%%")
    values = {
        "path": path,
        "command": path.replace("$", "$$"),  # only there is $ a variable
        "programs": str(programs).replace("%", "%%"),
        "user": SYSTEM_USER if user == "root" else user,
    }
    return {
        f"{name}.service": render("unit.service", service=service, **values)
        for name, service in SERVICES.items()
    }


def monitoring_files() -> dict[str, str]:
    """Return the files for Prometheus and Grafana verbatim, since these have a template
    syntax of their own.
    """
    return {name: (TEMPLATES / name).read_text(encoding="utf-8") for name in MONITORING}


def render(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    loader = PackageLoader("fedaux.deploy")
    environment = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["toml"] = toml_value
    return environment


def comments(section: str) -> dict[str, str]:
    """The comments in a settings file, by key. See `templates/settings.toml`."""
    table: dict[str, str] = tomllib.loads(
        (TEMPLATES / "settings.toml").read_text(encoding="utf-8")
    )[section]
    return table


def site_notes(base: Config) -> dict[str, str]:
    """The comments in a site's settings, which depend on what the run asks of sites."""
    notes = comments("site")
    if sends_sums(base):
        notes |= comments("sums")
    if base.teachers.run_on == "clients":
        notes |= comments("teaching")
    return notes


# Settings


def percent_held_out(config: Config) -> str:
    """The share of its records that each site holds out for a test, or "" if it holds
    out none.
    """
    if not config.tests_at_sites:
        return ""
    return f"{100 * config.data.site_test_fraction:g} %"


def sends_sums(config: Config) -> bool:
    """Whether clients send sums of features, which have no noise."""
    return config.analytic_head is not None and config.analytic_head.sums


def server_config(base: Config, sites: Sequence[str]) -> Config:
    """Return the server's settings from `base`. If it names no public data, its own
    source stands in.
    """
    data = _own_data(base.data)
    privacy = replace(base.privacy, unsafe_seed=-1)
    federation = replace(base.federation, sites=tuple(sites), registered_only=True)
    return replace(
        base, data=data, aux=_public_data(base), privacy=privacy, federation=federation
    )


def site_config(base: Config, name: str) -> Config:
    """A site's settings from `base`: its records, its budget, and the training that the
    budget is planned for.
    """
    shared = base.federation
    aux = AuxConfig(negatives=base.aux.negatives)
    seed = Config.seed
    if base.teachers.run_on == "clients":  # they look at the server's public examples
        aux = _public_data(base)
        seed = base.seed
    config = Config(
        method=base.method,
        method_options=base.method_options,
        rounds=base.rounds,
        head_only=base.head_only,
        head_init=base.head_init,
        random_features=base.random_features,
        prototypes=base.prototypes,
        data=_own_data(base.data),
        aux=aux,
        teachers=base.teachers,
        local=base.local,
        privacy=replace(base.privacy, unsafe_seed=-1),
        federation=FederationConfig(
            sites=(name,),
            secure=shared.secure,
            threshold=shared.threshold,
            colluders=shared.colluders,
        ),
        seed=seed,
    )
    federation = replace(config.federation, sends=needed_by(config))
    return replace(config, federation=federation)


def schema_file(base: Config) -> dict[str, str]:
    """The schema of tables, for the folder of each party. Nothing for other records."""
    texts: set[str] = set()
    for source in (base.data, base.aux):
        schema = _schema_path(source)
        if schema:
            texts.add(Path(schema).read_text(encoding="utf-8"))
    if len(texts) > 1:
        raise DeployError(
            "Cannot write one schema for all: [data] and [aux] name different ones. "
            "Name one file in both."
        )
    if not texts:
        return {}
    return {SCHEMA_FILE: texts.pop()}


def with_own_schema(config: Config) -> Config:
    """Let tables be read by the schema next to the settings."""
    data = _beside(config.data)
    aux = _beside(config.aux)
    if aux.source == "schema":
        aux = replace(aux, path=SCHEMA_FILE)
    return replace(config, data=data, aux=aux)


def _schema_path(source: DataConfig | AuxConfig) -> str:
    if source.source == "schema":
        return source.path
    return str(dict(source.options).get("schema", ""))


def _beside(source: _Table) -> _Table:
    options = dict(source.options)
    if "schema" not in options:
        return source
    options["schema"] = SCHEMA_FILE
    options.pop("files", None)  # of a simulation; each site has its own
    return replace(source, options=tuple(options.items()))


def demo_config() -> Config:
    """Return settings with scikit-learn's digits as every party's data, for a
    deployment that has no data yet.
    """
    from fedaux.config.presets import DEMO

    return replace(
        DEMO,
        data=replace(DEMO.data, classes=tuple("0123456789")),
        aux=AuxConfig(source="digits"),
    )


def _public_data(base: Config) -> AuxConfig:
    aux = replace(base.aux, path=_absolute(base.aux.path))
    if aux.source:
        return aux
    data = _own_data(base.data)
    return replace(aux, source=data.source, path=data.path, options=data.options)


def _own_data(data: DataConfig) -> DataConfig:
    """The party's own source, with what all share: the classes, the person field, and
    how many records sites hold out.
    """
    path = _absolute(data.path)
    source = DataConfig(data.source, path, data.options, data.classes, data.person)
    return replace(source, partition="own", site_test_fraction=data.site_test_fraction)


def _absolute(path: str) -> str:
    """Make a path absolute, since scripts run in another folder than the command that
    named it.
    """
    if not path:
        return ""
    return str(Path(path).expanduser().absolute())

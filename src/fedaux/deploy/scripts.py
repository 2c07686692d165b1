"""Shell scripts, systemd units and other text of a deployment, from the files in `templates/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedaux.config.toml import toml_value

SERVER_SCRIPTS = ("superlink.sh", "superexec.sh", "register.sh", "run.sh", "metrics.sh")
MONITORING = ("prometheus.yml", "alerts.yml", "dashboard.json")
SITE_SCRIPTS = ("supernode.sh",)
SYSTEM_USER = "fedaux"  # of a deployment that root has written


def render(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(values)


@dataclass(frozen=True)
class Service:
    """`home` below the deployment's folder is all that it may write to."""

    what: str
    home: str
    script: str
    devices: bool = False  # trains, perhaps on a GPU
    local_only: bool = False  # speaks with this machine alone


SERVICES = {
    "fedaux-superlink": Service("where sites call in", "server", "superlink.sh"),
    "fedaux-superexec": Service("the server's part of an app", "server", "superexec.sh", devices=True),
    "fedaux-metrics": Service("metrics for Prometheus", "server", "metrics.sh", local_only=True),
    "fedaux-site@": Service("site %i", "sites/%i", "supernode.sh", devices=True),
}


def systemd_units(folder: Path, programs: Path, user: str) -> dict[str, str]:
    """Units for the server, and a template for any site, `fedaux-site@NAME`. None of them runs as root."""
    path = _escape(folder)
    command = path.replace("$", "$$")  # only there is $ a variable
    facts = {"path": path, "command": command, "programs": _escape(programs), "user": _user(user)}
    return {f"{name}.service": render("unit.service", service=one, **facts) for name, one in SERVICES.items()}


def _user(name: str) -> str:
    return SYSTEM_USER if name == "root" else name


def monitoring_files() -> dict[str, str]:
    """For Prometheus and Grafana, as they are: these have templates of their own."""
    folder = files("fedaux.deploy") / "templates"
    return {name: (folder / name).read_text(encoding="utf-8") for name in MONITORING}


@cache
def _templates() -> Environment:
    loader = PackageLoader("fedaux.deploy")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters["toml"] = toml_value
    return environment


def _escape(path: Path) -> str:
    """Escaped for systemd, which expands % within quotes."""
    return str(path).replace("%", "%%")

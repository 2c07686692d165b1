"""Shell scripts, systemd units and other text of a deployment, from the files in `templates/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedaux.config.toml import toml_value

SERVER_SCRIPTS = ("superlink.sh", "superexec.sh", "register.sh", "run.sh")
SITE_SCRIPTS = ("supernode.sh",)


def render(template: str, **values: Any) -> str:
    return _templates().get_template(template).render(values)


def systemd_units(folder: Path, programs: Path) -> dict[str, str]:
    """Two units for the server, and a template for any site, `fedaux-site@NAME`."""
    units = {
        "fedaux-superlink.service": ("server/superlink.sh", "where sites call in"),
        "fedaux-superexec.service": ("server/superexec.sh", "the server's part of an app"),
        "fedaux-site@.service": ("sites/%i/supernode.sh", "site %i"),
    }
    paths = {"folder": _escape(folder), "programs": _escape(programs)}
    return {name: render("unit.service", script=script, what=what, **paths) for name, (script, what) in units.items()}


@cache
def _templates() -> Environment:
    loader = PackageLoader("fedaux.deploy")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters["toml"] = toml_value
    return environment


def _escape(path: Path) -> str:
    """Escaped for systemd, which expands % and $ within quotes."""
    return str(path).replace("%", "%%").replace("$", "$$")

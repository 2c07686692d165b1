"""`server.env` and `site.env`: addresses and names, for scripts and for this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedaux.core.errors import Exit, FedauxError


class SiteError(FedauxError, ValueError):
    """A folder that does not hold a site."""

    code = Exit.FOLDER


def read_env(path: Path) -> dict[str, str]:
    """NAME and SERVER."""
    if not path.is_file():
        raise SiteError(f"{path.parent} is not a site: it has no {path.name}; `fedaux deploy init` writes one")
    env = read_variables(path, ("NAME", "SERVER"))
    if not env["SERVER"].rpartition(":")[2].isdigit():
        raise SiteError(f"{path}: SERVER={env['SERVER']} names no port; write SERVER=example.org:8443")
    return env


def read_variables(path: Path, needed: Sequence[str]) -> dict[str, str]:
    """Lines such as SERVER=example.org:8443."""
    lines = [line.partition("=") for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    env = {key.strip(): value.strip().strip("\"'") for key, _, value in lines}
    missing = [key for key in needed if not env.get(key)]
    if missing:
        raise SiteError(f"{path} does not say {', '.join(missing)}: write lines such as SERVER=example.org:8443")
    return env

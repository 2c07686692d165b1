"""`fedaux deploy check`: finds what would go wrong at a site before it takes part, with a remedy for each problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedaux.core.errors import Exit, FedauxError
from fedaux.deploy import site_checks as site
from fedaux.deploy.server_checks import check_clock, check_registration, check_server
from fedaux.deploy.site_checks import CheckResult
from fedaux.privacy.budget import account_folder


class SiteError(FedauxError, ValueError):
    """A folder that does not hold a site."""

    code = Exit.FOLDER


def check_site(folder: Path) -> Iterator[CheckResult]:
    """All checks, in the order in which one would fix problems."""
    folder = folder.expanduser().absolute()
    env = read_env(folder / "site.env")
    ca, address, name = folder / "ca.crt", env["SERVER"], env["NAME"]
    yield site.check_versions()
    yield (authority := site.check_certificate(ca))
    yield site.check_key_pair(folder)
    yield site.check_key_mode(folder / "key")
    unverified = CheckResult("server", None, "not called without a ca.crt")
    yield (server := check_server(address, ca) if authority.ok else unverified)
    if server.ok:
        yield check_clock(address, ca)
        yield check_registration(address, ca, folder / "key")
    else:
        yield CheckResult("clock", None, "cannot be compared without the server")
        yield CheckResult("registered", None, "is found out when the node starts")
    config = site.load_settings(folder)
    if isinstance(config, CheckResult):
        yield config
        return
    yield site.check_settings(config, name)
    yield site.check_privacy(config)
    count, result = site.check_records(config, folder, name)
    yield result
    yield site.check_disk(folder, count)
    yield site.check_budget(config, account_folder(config, folder / "vault", name))


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

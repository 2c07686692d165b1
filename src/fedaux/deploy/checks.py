"""`fedaux deploy check`: finds what would go wrong at a site before it takes part, with a remedy for each problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedaux.deploy import site_checks as site
from fedaux.deploy.env_files import read_env
from fedaux.deploy.server_checks import check_clock, check_registration, check_server
from fedaux.deploy.site_checks import CheckResult
from fedaux.privacy.account import account_folder


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

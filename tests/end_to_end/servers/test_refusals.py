"""Who is not let in: each intruder is tried against a real SuperLink with TLS and node
keys.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedaux.deploy.certificates import create_authority
from fedaux.deploy.link import ControlLink
from helpers.harness import Patience
from helpers.three_sites import SITES, Federation

pytestmark = pytest.mark.slow


def said(made: Federation, name: str, seconds: float = 25) -> str:
    """What an intruder's node says until it gives up, or until we do."""
    patience = Patience(seconds)
    while not patience.over() and made.servers.processes[name].poll() is None:
        time.sleep(0.5)
    return made.servers.log(name)


def online(made: Federation) -> int:
    return sum(
        node.status == "online" for node in ControlLink(made.servers.folder).nodes()
    )


def test_intruders_are_not_let_in(
    federation: Callable[..., Federation], tmp_path: Path
) -> None:
    made = federation(plain=False)
    made.servers.superlink()
    made.servers.register(SITES[0])
    made.site(SITES[0])
    patience = Patience(60)
    while online(made) == 0 and not patience.over():
        time.sleep(1)
    assert online(made) == 1
    settings = {
        "config": str(made.site_file),
        "vault": str(tmp_path / "v"),
        "clients": SITES[1],
    }

    made.servers.node("unregistered", settings)  # a key that nobody registered
    assert "Failed to activate SuperNode" in said(made, "unregistered")

    foreign = tmp_path / "foreign.crt"
    foreign.write_bytes(create_authority().certificate_pem())
    made.servers.register(SITES[1])
    # the server is not whom this site trusts
    made.servers.node("foreign", settings, key=SITES[1], root=foreign)
    assert "unable to get local issuer certificate" in said(made, "foreign")

    made.servers.plain = True
    made.servers.node("plain", settings)  # no TLS at all
    made.servers.plain = False
    assert "Connection attempt failed" in said(made, "plain")

    # the key of a node that is there
    made.servers.node("twin", {**settings, "clients": SITES[0]}, key=SITES[0])
    assert "Failed to activate SuperNode" in said(made, "twin")

    assert [
        made.servers.processes[name].poll() is None
        for name in ("unregistered", "foreign", "twin")
    ] == [False] * 3
    assert online(made) == 1

"""Checks that need Flower's own server or a program beside them."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.deploy import checks
from fedaux.deploy.certificates import load_key
from fedaux.deploy.checks import check_registration
from helpers.deployments import AWKWARD, deploy, fine, problem, unused_address


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return deploy(tmp_path / AWKWARD)


@pytest.fixture
def site(folder: Path) -> Path:
    return folder / "sites" / "berlin"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_key_that_wants_a_password(site: Path) -> None:
    (site / "key").unlink()
    words = [
        "ssh-keygen",
        "-q",
        "-t",
        "ecdsa",
        "-b",
        "384",
        "-N",
        "secret",
        "-f",
        str(site / "key"),
    ]
    subprocess.run(words, input="y\n", text=True, check=True)
    problem(
        checks.check_key_pair(site),
        "is not a key that Flower takes",
        "fedaux deploy key",
    )


@pytest.fixture
def flower(folder: Path) -> Iterator[tuple[str, Any]]:
    """Flower's own server with the deployment's certificate: its address, and its
    memory.
    """
    import uvicorn
    from flwr.superlink.main import create_app

    made = create_app()
    made.state.enable_supernode_auth = True
    tls = {
        "ssl_certfile": folder / "server" / "server.pem",
        "ssl_keyfile": folder / "server" / "server.key",
    }
    address = unused_address()
    running = uvicorn.Server(
        uvicorn.Config(made, port=int(address.split(":")[1]), log_level="error", **tls)
    )
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.02)
    yield address, made.state.linkstate_factory.state()
    running.should_exit = True
    thread.join(10)


def test_registered(flower: tuple[str, Any], site: Path) -> None:
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    address, memory = flower
    problem(
        check_registration(address, site / "ca.crt", site / "key"),
        "does not know this key",
        "rotate-key",
    )
    public = public_key_to_bytes(load_key(site / "key").public_key())
    node = memory.create_node("owner", "owner", public, 0)
    fine(check_registration(address, site / "ca.crt", site / "key"))
    (known,) = memory.get_node_info(node_ids=[node])
    assert known.status == "registered"  # asking did not start a node


def aim(site: Path, address: str) -> None:
    env = site / "site.env"
    env.write_text(env.read_text().replace("127.0.0.1:8443", address))


def test_a_site_that_is_in_order(flower: tuple[str, Any], site: Path) -> None:
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    address, memory = flower
    public = public_key_to_bytes(load_key(site / "key").public_key())
    memory.create_node("owner", "owner", public, 0)
    aim(site, address)
    done = CliRunner().invoke(
        app, ["deploy", "check", str(site)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()] == ["ok"] * 16

"""The scripts for real, over TLS on this machine: a site comes up, takes part, comes back, and refuses others' code."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.schema import Config
from fedaux.deploy.layout import Address, init
from fedaux.deploy.link import ControlLink, Node
from fedaux.deploy.settings import demo_config
from helpers.deployments import AWKWARD, playing, until
from helpers.harness import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("flower-superexec") is None, reason="needs Flower's programs on the path"),
]

STRANGER = """
import pathlib
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.query()
def steal(message, context):
    pathlib.Path(context.node_config["config"]).with_name("stolen").touch()
    return Message(RecordDict(), reply_to=message)

@server.main()
def main(grid, context):
    orders = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
    for reply in grid.send_and_receive(orders, timeout=60):
        print("ANSWER", reply.error.code if reply.has_error() else "stolen", flush=True)
"""


def test_a_federation_of_one(tmp_path: Path) -> None:
    folder, port = tmp_path / AWKWARD, free_port()
    init(folder, ["berlin"], Address("127.0.0.1", port), demo_config())
    server, site = folder / "server", folder / "sites" / "berlin"
    flower = {**os.environ, "FLWR_HOME": str(server / "flwr-home"), "FLWR_TELEMETRY_ENABLED": "0"}

    def flwr(*words: str) -> str:
        done = subprocess.run(["flwr", *words], env=flower, capture_output=True, text=True, timeout=300, check=False)
        return done.stdout + done.stderr

    def status() -> str:
        return str(json.loads(flwr("supernode", "list", "fedaux", "--format", "json"))["nodes"][0]["status"])

    def checked() -> str:
        return CliRunner().invoke(app, ["deploy", "check", str(site)], catch_exceptions=False).output

    log, told = server / "superlink.log", site / "supernode.log"
    with playing(server / "superlink.sh"), playing(server / "superexec.sh"):
        until(lambda: "Uvicorn running" in log.read_text())
        assert "does not know this key" in checked()
        subprocess.run([str(server / "register.sh")], check=True, timeout=300)
        assert "problem" not in checked()
        assert status() == "registered"
        with playing(site / "supernode.sh") as script:
            until(lambda: status() == "online")

            quick = 'set="rounds=1; pretrain.epochs=1; distill.epochs=1"'
            run = [str(server / "run.sh"), "--run-config", quick]
            done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=True)
            assert "accuracy" in done.stdout, done.stdout
            assert (server / "run" / "state.safetensors").is_file()
            assert Config.load(server / "fedaux.toml").rounds > 1  # the override was one
            assert "ε = 1 of 1 spent in 1 entry" in checked()

            stranger = tmp_path / "stranger"
            stranger.mkdir()
            (stranger / "stranger.py").write_text(STRANGER)
            app_text = (server / "app" / "pyproject.toml").read_text()
            app_text = app_text.replace("fedaux.runs.server_app:app", "stranger:server")
            (stranger / "pyproject.toml").write_text(
                app_text.replace("fedaux.flower.client_app:app", "stranger:client")
            )
            assert "ANSWER 7" in flwr("run", str(stranger), "fedaux", "--stream")
            assert "carries files of its own: stranger.py" in told.read_text()
            assert not (site / "stolen").exists()

            node = subprocess.run(["pgrep", "-P", str(script.pid)], capture_output=True, text=True, check=True)
            os.kill(int(node.stdout), signal.SIGKILL)
            until(lambda: told.read_text().count("SuperNode ID") == 2)  # may be refused for a minute, and is let in
            assert "the node ended; it starts again" in told.read_text()
        until(lambda: status() == "offline")


def test_sites_come_and_go_at_a_server_that_is_up(tmp_path: Path) -> None:
    """By name: a site joins, gets another key with which alone it is let in, and is shut out."""
    folder, port = tmp_path / AWKWARD, free_port()
    init(folder, ["berlin", "paris"], Address("127.0.0.1", port), demo_config())
    link, log = ControlLink(folder / "server"), folder / "server" / "superlink.log"

    def fedaux(*words: str) -> str:
        done = CliRunner().invoke(app, ["deploy", *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def nodes() -> dict[str, Node]:
        return {node.name: node for node in link.nodes()}

    with playing(folder / "server" / "superlink.sh"):
        until(lambda: "Uvicorn running" in log.read_text())
        subprocess.run([str(folder / "server" / "register.sh")], check=True, timeout=120)
        assert set(nodes()) == {"berlin", "paris"}
        assert "Its key is registered" in fedaux("add-site", str(folder), "oslo")
        assert {name: node.status for name, node in nodes().items()} == dict.fromkeys(
            ("berlin", "paris", "oslo"), "registered"
        )
        with playing(folder / "sites" / "oslo" / "supernode.sh"):
            until(lambda: nodes()["oslo"].status == "online")
            fedaux("remove-site", str(folder), "oslo")
            assert set(nodes()) == {"berlin", "paris"}
        old = nodes()["berlin"].node_id
        site = folder / "sites" / "berlin"
        fedaux("key", str(site), "--replace")
        fedaux("rotate-key", str(folder), "berlin")
        assert nodes()["berlin"].node_id != old
        with playing(site / "supernode.sh"):
            until(lambda: nodes()["berlin"].status == "online")
        fedaux("renew", str(folder))
    with playing(folder / "server" / "superlink.sh"):
        until(lambda: "Uvicorn running" in log.read_text())
        assert set(nodes()) == {"berlin", "paris"}  # over TLS, with the new certificate

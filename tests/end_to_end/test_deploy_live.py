"""The scripts for real, over TLS on this machine: a site comes up, takes part, comes
back, and refuses others' code.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.schema import Config
from fedaux.deploy.certificates import site_fingerprint
from fedaux.privacy.account_file import read_account
from fedaux.server.run_state import RunState
from helpers.deployments import AWKWARD, LiveDeployment, playing, processes, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("flower-superexec") is None,
        reason="needs Flower's programs on the path",
    ),
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


def fedaux(*words: str | Path) -> str:
    done = CliRunner().invoke(app, ["deploy", *map(str, words)], catch_exceptions=False)
    assert words[0] == "check" or done.exit_code == 0, done.output
    return done.output


def test_a_federation_of_one(tmp_path: Path) -> None:
    with LiveDeployment(tmp_path / AWKWARD, ["berlin"]) as made:
        server, site = made.server, made.site("berlin")
        made.start("superlink.sh", "superexec.sh")
        assert "does not know this key" in fedaux("check", site)
        made.register()
        assert "problem" not in fedaux("check", site)
        assert made.nodes()["berlin"].status == "registered"
        with playing(site / "supernode.sh") as script:
            until(lambda: made.nodes()["berlin"].status == "online")
            assert made.run(1).wait(300) == 0
            assert "accuracy" in (server / "run.log").read_text()
            assert (server / "run" / "state.safetensors").is_file()
            # the override was one
            assert Config.load(server / "fedaux.toml").rounds > 1
            assert "ε = 1 of 1 spent in 1 entry" in fedaux("check", site)

            stranger, told = tmp_path / "stranger", site / "supernode.log"
            stranger.mkdir()
            (stranger / "stranger.py").write_text(STRANGER)
            text = (server / "app" / "pyproject.toml").read_text()
            text = text.replace("fedaux.runs.server_app:app", "stranger:server")
            text = text.replace("fedaux.flower.client_app:app", "stranger:client")
            (stranger / "pyproject.toml").write_text(text)
            flower = {
                **os.environ,
                "FLWR_HOME": str(server / "flwr-home"),
                "FLWR_TELEMETRY_ENABLED": "0",
            }
            words = ["flwr", "run", str(stranger), "fedaux", "--stream"]
            done = subprocess.run(
                words,
                env=flower,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert "ANSWER 7" in done.stdout + done.stderr
            assert (
                "contains files that are not allowed: stranger.py" in told.read_text()
            )
            assert not (site / "stolen").exists()

            node = subprocess.run(
                ["pgrep", "-P", str(script.pid)],
                capture_output=True,
                text=True,
                check=True,
            )
            os.kill(int(node.stdout), signal.SIGKILL)
            # may be refused for a minute, and is let in
            until(lambda: told.read_text().count("SuperNode ID") == 2)
            assert "it has ended, and it starts again" in told.read_text()
        until(lambda: made.nodes()["berlin"].status == "offline")


def test_whatever_fails_in_a_round_is_back_by_itself_and_the_run_is_completed(
    tmp_path: Path,
) -> None:
    """Each process of the server and of a site is killed, and the link's database is
    locked, a round each.

    Nobody does anything: scripts start what has ended, and run.sh goes on with an app
    that is gone.
    """
    with LiveDeployment(tmp_path / AWKWARD) as made:
        made.start("superlink.sh", "superexec.sh")
        made.register()
        made.start_sites()

        def kill(folder: Path, word: str) -> None:
            # which has started the others
            os.kill(min(processes(folder, word)), signal.SIGKILL)

        def lock() -> None:
            with closing(
                sqlite3.connect(made.server / "superlink.db", isolation_level=None)
            ) as database:
                until(lambda: locked(database))
                time.sleep(45)

        faults = {
            "a node is killed": lambda: kill(
                made.site("berlin"), "-m fedaux.deploy.supernode"
            ),
            "the link is killed": lambda: kill(
                made.server, "-m fedaux.deploy.superlink"
            ),
            "the link's database is locked": lock,
            "the app is killed": lambda: kill(made.server, "flwr-serverapp"),
            "what starts apps is killed": lambda: kill(
                made.server, "-m fedaux.deploy.superexec"
            ),
        }
        run = made.run(
            len(faults) + 1, "federation.timeout=300; federation.connect_timeout=300"
        )
        for number, (name, fault) in enumerate(faults.items(), start=1):
            until(lambda number=number: trains(made, number), 900)  # type: ignore[misc]
            begun = time.monotonic()
            fault()
            until(
                lambda number=number: made.status()[1]["finished_rounds"] >= number, 900
            )  # type: ignore[misc]
            print(f"{name}: the round is done {time.monotonic() - begun:.0f} s later")
        assert run.wait(900) == 0, (made.server / "run.log").read_text()
        state = RunState.load(made.server / "run")
        assert [result.round for result in state.history] == list(
            range(1, len(faults) + 2)
        )
        print(
            "sites in each round:",
            [len(result.client_metrics) for result in state.history],
        )
        for name in made.sites:
            assert (
                len(
                    [
                        entry
                        for entry in read_account(made.site(name) / "vault")[1]
                        if entry.mechanism.steps
                    ]
                )
                == 1
            )
        folders = [made.server, *(made.site(name) for name in made.sites)]
    # nothing is left
    assert [processes(folder, "") for folder in folders] == [{}, {}, {}]


def trains(made: LiveDeployment, number: int) -> bool:
    found = made.status()[1]
    return bool(
        found["finished_rounds"] == number - 1
        and found["phase"] == "train"
        and found["state"] == "running"
    )


def locked(database: sqlite3.Connection) -> bool:
    try:
        database.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    return True


def test_sites_come_and_go_at_a_server_that_is_up(tmp_path: Path) -> None:
    """By name: a site joins, gets another key with which alone it is let in, and is
    shut out.
    """
    with LiveDeployment(tmp_path / AWKWARD) as made:
        folder, site = made.folder, made.site("berlin")
        with playing(made.server / "superlink.sh"):
            until(lambda: made.connections() is not None)
            made.register()
            assert set(made.nodes()) == {"berlin", "paris"}
            assert "rotate-key" in fedaux("add-site", folder, "oslo")
            fedaux("key", made.site("oslo"))
            assert site_fingerprint(
                (made.site("oslo") / "key.pub").read_bytes()
            ) in fedaux("rotate-key", folder, "oslo")
            statuses = {name: node.status for name, node in made.nodes().items()}
            assert statuses == dict.fromkeys(("berlin", "paris", "oslo"), "registered")
            with playing(made.site("oslo") / "supernode.sh"):
                until(lambda: made.nodes()["oslo"].status == "online")
                fedaux("remove-site", folder, "oslo")
                assert set(made.nodes()) == {"berlin", "paris"}
            old = made.nodes()["berlin"].node_id
            fedaux("key", site, "--replace")
            fedaux("rotate-key", folder, "berlin")
            assert made.nodes()["berlin"].node_id != old
            with playing(site / "supernode.sh"):
                until(lambda: made.nodes()["berlin"].status == "online")
            fedaux("renew", folder)
        made.start("superlink.sh")
        # over TLS, with the new certificate
        assert set(made.nodes()) == {"berlin", "paris"}

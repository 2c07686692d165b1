"""The SuperLink from its operator's side (`end_to_end/test_deploy_live.py` has a real
one), and regions without one.
"""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedaux.core.progress import OrdersSent, ReplyReceived
from fedaux.deploy.link import ControlLink, LinkError, RegionalServers, merges_regions
from fedaux.deploy.status import Status, read_status
from fedaux.runs.status import STATUS_FILE, RunStatus
from fedaux.server.regions import REGIONS_FOLDER, RegionSpec
from helpers.deployments import unused_address
from helpers.tiny import TINY_CONFIG

NOW = 1_800_000_000.0
REGIONS = [part.name for part in RegionSpec.all(3)]


def test_a_server_that_is_down_is_an_error_that_names_it(folder: Path) -> None:
    env, address = folder / "server" / "server.env", unused_address()
    env.write_text(env.read_text().replace("LOCAL=127.0.0.1:8443", f"LOCAL={address}"))
    with pytest.raises(LinkError, match=f"the server at {address}: the request failed"):
        ControlLink(folder / "server").nodes()


def test_keys_are_sent_as_flower_sends_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a relative folder, too, as in `fedaux deploy add-site hospitals oslo`."""

    class Client:
        def RegisterNode(self, request: object) -> object:
            self.request = request
            return type("Response", (), {"node_id": 7})

        def close(self) -> None:
            pass

    client, path = Client(), folder / "server" / "keys" / "berlin.pub"
    monkeypatch.setattr(
        "flwr.cli.utils.init_http_client_from_connection", lambda connection: client
    )
    monkeypatch.chdir(folder)
    assert ControlLink(Path("server")).register(path, "berlin") == 7
    key = serialization.load_ssh_public_key(path.read_bytes())
    assert client.request.public_key == public_key_to_bytes(key)  # type: ignore[attr-defined,arg-type]
    assert client.request.name == "berlin"  # type: ignore[attr-defined]


def write(folder: Path, status: RunStatus, moment: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STATUS_FILE).write_text(status.to_json())
    os.utime(folder / STATUS_FILE, (moment, moment))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The first region is at work and has answered, the second was killed, the third
    was never started.
    """
    for name, moment in zip(REGIONS, (NOW, NOW - 3600), strict=False):
        write(
            tmp_path / REGIONS_FOLDER / name,
            RunStatus.start(TINY_CONFIG, None, NOW - 7200),
            moment,
        )
    status = RunStatus.start(TINY_CONFIG, None, NOW - 7200, REGIONS)
    status.update(OrdersSent("release", None, tuple(REGIONS), 0), NOW - 7000)
    status.update(ReplyReceived("release", None, REGIONS[0], 10), NOW - 6900)
    write(tmp_path, status, NOW)
    return tmp_path


def read(run: Path, **options: float) -> Status:
    return read_status(
        run, RegionalServers(run, lambda: NOW), NOW, folder=run, **options
    )


def test_regions_by_name_with_what_each_is_asked_for(run: Path) -> None:
    found = read(run, stuck_after=1e6)
    assert (found.state, found.phase, found.link) == ("running", "score", True)
    assert found.problems == (
        (
            "not connected: 2of3 (offline), 3of3 (unregistered). The log of flwr run "
            "there has the reason."
        ),
    )
    assert [
        (site.name, site.connection, site.record.asked_for) for site in found.sites
    ] == [
        ("1of3", "online", ""),
        ("2of3", "offline", "release"),
        ("3of3", "unregistered", "release"),
    ]
    assert found.sites[0].record.last_reply == NOW - 6900
    assert [site.since for site in found.sites] == [NOW - 7200, NOW - 3600, None]


def test_a_run_that_waits_too_long_says_for_which_region(run: Path) -> None:
    (problem,) = read(run).problems
    assert (
        "Not answered: 2of3 (offline), 3of3 (unregistered). Look at the log of flwr "
        "run there." in problem
    )


def test_a_run_that_was_killed_goes_on_with_the_same_command(run: Path) -> None:
    os.utime(run / STATUS_FILE, (NOW - 120, NOW - 120))
    problem = read(run).problems[0]
    assert problem.endswith("The same command continues it.")


def test_a_folder_without_regions_is_no_merging_servers(run: Path) -> None:
    assert merges_regions(run)
    assert not merges_regions(run / REGIONS_FOLDER / "1of3")

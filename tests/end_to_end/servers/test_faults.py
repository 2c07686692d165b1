"""The fault matrix of docs/sites-operate.md: each row kills something real, and the run
does what the table says.

Whatever happens: nothing is released twice, no round counts twice, no finished round is
lost.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.core.failures import Refusal
from fedaux.server.run_state import RunState
from helpers.harness import _family, wait_for
from helpers.slow_training import SECONDS
from helpers.three_sites import SITES, Federation

pytestmark = pytest.mark.slow
Make = Callable[..., Federation]


@pytest.fixture(autouse=True)
def timed(request: pytest.FixtureRequest) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"\n{request.node.name}: {time.monotonic() - started:.0f} s")


def checked(made: Federation, rounds: int = 2) -> RunState:
    """The state at the end, with what must hold after any fault."""
    state = RunState.load(made.out)
    assert state.round == len(state.history) == rounds
    assert [result.round for result in state.history] == list(range(1, rounds + 1))
    for name in SITES:
        assert len(made.spent(name)) <= 1
    for name, release in state.releases.items():
        (stored,) = (
            path.read_text()
            for path in (made.folder / "vaults" / name).glob("release-*.json")
        )
        # what the server has is what the site remembers
        assert str(release.arrays["values"].tolist()) in stored
    return state


def training(made: Federation, name: str) -> int:
    """The process in which a site trains, once it does."""
    found: list[int] = []

    def there() -> bool:
        begun = {int(path.name) for path in made.training.iterdir()}
        found[:] = begun.intersection(_family(made.servers.processes[name].pid))
        return bool(found)

    made.servers.until(r"releases: 3/3")
    wait_for(there, 120, "nobody trains", made.servers, name)
    return found[0]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def failures(state: RunState, round_: int = 1) -> dict[str, str]:
    return {
        failure.client: failure.reason for failure in state.history[round_ - 1].failures
    }


def test_a_supernode_killed_in_a_round_is_asked_again_when_it_is_back(
    federation: Make,
) -> None:
    made = federation(slow=True)
    made.up()
    made.begin()
    training(made, SITES[1])
    made.servers.kill(SITES[1])
    # its machine comes back, under a new node id: the client is the same
    made.site(SITES[1])
    made.servers.finish(seconds=400)
    state = checked(made)
    assert [len(result.client_metrics) for result in state.history] == [3, 3]
    assert len(made.spent(SITES[1])) == 1


def test_a_clientapp_killed_in_a_round_is_asked_again(federation: Make) -> None:
    made = federation(slow=True)
    made.up()
    made.begin()
    os.kill(training(made, SITES[0]), signal.SIGKILL)
    made.servers.finish(seconds=400)
    state = checked(made)
    assert [len(result.client_metrics) for result in state.history] == [3, 3]


def test_a_clientapp_that_hangs_is_asked_again(federation: Make) -> None:
    """Stopped, not killed: it says nothing any more."""
    made = federation(slow=True, rounds=1)
    made.up()
    made.begin()
    os.kill(training(made, SITES[2]), signal.SIGSTOP)
    made.servers.finish(seconds=400)
    (result,) = checked(made, rounds=1).history
    assert (len(result.client_metrics), result.failures) == (3, ())


def test_a_straggler_is_not_waited_for(federation: Make) -> None:
    """It lives and says so, and trains for an hour."""
    made = federation(slow=True, timeout=90, rounds=1)
    made.servers.superlink()
    for name in SITES:
        made.servers.environment[SECONDS] = "3600" if name == SITES[2] else "1"
        made.site(name)
    made.begin()
    made.servers.finish(seconds=400)
    (result,) = checked(made, rounds=1).history
    assert [(one.client, one.kind) for one in result.failures] == [
        (SITES[2], "no-answer")
    ]
    assert len(result.client_metrics) == 2


def test_a_superlink_killed_and_restarted_costs_nothing(federation: Make) -> None:
    made = federation(slow=True, isolation="process")
    made.up()
    made.begin()
    training(made, SITES[0])
    made.servers.kill("superlink")
    time.sleep(5)
    made.servers.superlink()
    wait_for(
        lambda: (made.out / "model").exists(),
        400,
        "the run did not end",
        made.servers,
        "superexec",
    )
    state = checked(made)
    assert [len(result.client_metrics) for result in state.history] == [3, 3]


def test_a_server_app_that_is_killed_goes_on_in_a_new_run(federation: Make) -> None:
    made = federation(slow=True)
    made.up()
    made.begin()
    made.servers.until(r"round 1/2: accuracy", seconds=300)
    (app,) = [
        pid
        for pid in _family(made.servers.processes["superlink"].pid)
        if "flwr-serverapp" in _command(pid)
    ]
    os.kill(app, signal.SIGKILL)
    before = RunState.load(made.out)
    made.begin("again")
    text = made.servers.finish("again", seconds=400)
    state = checked(made)
    # kept of the last alone
    assert state.history[0] == replace(
        before.history[0], confusion=None, calibration=None
    )
    assert "releases: 1/3" not in text  # and nobody was asked for a release again
    assert "round 2/2: accuracy" in text


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 kB with nothing free."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk]
    if (
        shutil.which("mount") is None
        or subprocess.run(words, capture_output=True, check=False).returncode != 0
    ):
        pytest.skip("a small file system cannot be mounted here; run as root")
    with (disk / "full").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield disk
    subprocess.run(["umount", disk], check=False)


def test_a_site_with_a_full_disk_releases_nothing_and_the_others_go_on(
    federation: Make, full_disk: Path
) -> None:
    made = federation()
    made.servers.superlink()
    made.site(SITES[0], vault=str(full_disk))
    for name in SITES[1:]:
        made.site(name)
    made.begin()
    made.servers.finish(seconds=300)
    state = checked(made)
    assert SITES[0] not in state.releases
    assert Refusal.FAILED.description in failures(state)[SITES[0]]
    assert not list(full_disk.rglob("release-*"))


@pytest.mark.parametrize("quorum", [0.3, 0.9])
def test_most_of_the_nodes_gone_is_a_matter_of_the_quorum(
    federation: Make, quorum: float
) -> None:
    made = federation(slow=True, quorum=quorum)
    made.up()
    made.begin()
    training(made, SITES[0])
    made.servers.kill(SITES[1])
    made.servers.kill(SITES[2])
    if quorum < 0.5:
        made.servers.finish(seconds=400)
        assert [len(result.client_metrics) for result in checked(made).history] == [
            1,
            1,
        ]
        return
    made.servers.until("federation.quorum = 0.9 asks for 3", seconds=300)
    assert RunState.load(made.out).round == 0
    for name in SITES[1:]:
        made.site(name)
    made.begin("again")  # the sites are back: the same folder goes on
    made.servers.finish("again", seconds=400)
    assert [len(result.client_metrics) for result in checked(made).history] == [3, 3]

"""A server and two sites on machines of their own: far apart, on lossy wires, and one
cut off in the midst of a round.

Each is a network namespace with its own address; the scripts are those that `fedaux
deploy init` writes.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedaux.server.run_state import RunState
from helpers.deployments import SITES, LiveDeployment, until
from helpers.machines import Machines, needs_machines

pytestmark = [pytest.mark.slow, needs_machines]


class Deployment(LiveDeployment):
    def __init__(self, folder: Path, machines: Machines) -> None:
        super().__init__(folder, SITES, Machines.ADDRESS, machines.inside)
        self.machines = machines

    def answered(self, name: str) -> list[int]:
        """The rounds for which this site has trained, as its own log has them."""
        lines = (self.site(name) / "log" / "site.jsonl").read_text().splitlines()
        return [
            row["round"] for row in map(json.loads, lines) if row.get("task") == "train"
        ]

    def replies(self) -> list[int]:
        return [
            len(result.client_metrics)
            for result in RunState.load(self.server / "run").history
        ]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """On good wires, with both sites online."""
    with (
        Machines(SITES) as machines,
        Deployment(tmp_path / "federation", machines) as made,
    ):
        made.start("superlink.sh", "superexec.sh")
        made.register()
        made.start_sites()
        yield made


def test_far_sites_on_lossy_wires(deployment: Deployment) -> None:
    """A ping of 160 ms and every fiftieth packet lost: slower, and otherwise as at
    home.
    """
    for wire in deployment.machines.wires.values():
        wire.delay, wire.loss = 0.08, 0.02
    assert deployment.run(2).wait(900) == 0
    assert deployment.replies() == [2, 2]
    assert [deployment.answered(name) for name in SITES] == [[1, 2], [1, 2]]
    assert all(
        wire.lost > 0.01 * wire.carried > 0
        for wire in deployment.machines.wires.values()
    )


@pytest.mark.parametrize("seconds", [20, 150])
def test_a_site_that_is_cut_off_in_a_round(
    deployment: Deployment, seconds: float
) -> None:
    """For less than its time, nothing is missing; for more, the round ends without it,
    and a later one has it again.
    """
    cut = deployment.machines.wires["paris"]
    run = deployment.run(3, "federation.timeout=90; federation.quorum=0.5")

    def trains() -> bool:
        file = deployment.server / "run" / "status.json"
        now = json.loads(file.read_text()) if file.exists() else {}
        return bool(now and now["finished_rounds"] == 1 and now["phase"] == "train")

    until(trains, 600)
    cut.cut = True
    time.sleep(seconds)
    cut.cut = False
    assert cut.lost > 0
    assert run.wait(900) == 0
    assert deployment.replies() == ([2, 2, 2] if seconds < 90 else [2, 1, 2])
    # nothing was trained twice
    assert len(deployment.answered("paris")) == len(set(deployment.answered("paris")))
    assert [
        site["epsilon"] for site in deployment.status()[1]["sites"]
    ] == pytest.approx([1.0, 1.0], abs=1e-5)

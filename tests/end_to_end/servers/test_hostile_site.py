"""A site with a valid key attacks while a run goes on: the rounds of the others are
those of the undisturbed run.

With HOSTILE_LINK=flower the SuperLink is Flower's own, for figures of before.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.core.failures import Refusal
from fedaux.server.run_state import RunState
from helpers.harness import BIN, Servers, _family, wait_for
from helpers.hostile_node import ATTACK, REPORT
from helpers.three_sites import CONFIG, SITES, Federation

pytestmark = pytest.mark.slow
MB = 2**20


class Deployed(Servers):
    """The SuperLink that `superlink.sh` starts, and a last site that attacks."""

    def superlink(self, *extra: str) -> None:
        files = [
            ("ca-certfile", "ca.crt"),
            ("certfile", "server.pem"),
            ("keyfile", "server.key"),
        ]
        trust = [
            word
            for option, name in files
            for word in (f"--ssl-{option}", str(self.folder / name))
        ]
        address = [
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--database",
            str(self.folder / "superlink.db"),
        ]
        plain = os.environ.get("HOSTILE_LINK") == "flower"
        program = (
            [str(BIN / "flower-superlink")]
            if plain
            else [sys.executable, "-m", "fedaux.deploy.superlink"]
        )
        self.start("superlink", *program, *trust, *address, "--enable-supernode-auth")
        wait_for(
            lambda: "Uvicorn running" in self.log("superlink"),
            90,
            "it does not listen",
            self,
            "superlink",
        )

    def node(self, name: str, settings: dict[str, str], **options: object) -> None:
        super().node(name, settings)
        if name == SITES[-1]:
            words = self.processes[name].args
            self.kill(name)
            time.sleep(0.5)
            assert isinstance(words, list | tuple)
            self.start(
                name, *(word.replace("quick_node", "hostile_node") for word in words)
            )  # type: ignore[union-attr]


@contextmanager
def measuring(servers: Servers, found: dict[str, float]) -> Iterator[None]:
    """The largest resident memory of the SuperLink and of the server's app, and the
    largest database, in MB.
    """
    over = threading.Event()

    def resident(pid: int) -> float:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
            name = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return 0.0
        size = next(
            (
                int(line.split()[1]) / 1024
                for line in text.splitlines()
                if line.startswith("VmRSS")
            ),
            0.0,
        )
        key = "app" if "serverapp" in name else "link"
        found[key] = max(found.get(key, 0.0), size)
        return size

    def look() -> None:
        while not over.wait(0.25):
            for pid in (
                _family(servers.processes["superlink"].pid)
                if "superlink" in servers.processes
                else []
            ):
                resident(pid)
            disk = (
                sum(
                    path.stat().st_size
                    for path in servers.folder.glob("superlink.db*")
                    if path.exists()
                )
                / MB
            )
            found["disk"] = max(found.get("disk", 0.0), disk)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:  # or the process would never end
        over.set()
        thread.join()
    found["disk afterwards"] = (
        sum(path.stat().st_size for path in servers.folder.glob("superlink.db*")) / MB
    )


def play(folder: Path, attack: str) -> tuple[RunState, dict[str, float | str]]:
    folder.mkdir()
    # or no two runs have the same noise
    privacy = replace(CONFIG.privacy, unsafe_seed=1)
    config = replace(
        CONFIG, privacy=privacy, federation=replace(CONFIG.federation, timeout=400)
    )
    found: dict[str, float | str] = {}
    with Deployed(folder / "servers") as servers:
        servers.environment |= {ATTACK: attack, REPORT: str(folder / "report")}
        made = Federation(folder, servers, config)
        made.up()
        started = time.monotonic()
        try:
            with measuring(servers, found):  # type: ignore[arg-type]
                made.begin()
                servers.finish(seconds=300)
        finally:  # what it came to is a figure in either case
            found["seconds"] = time.monotonic() - started
            found["attack"] = (
                (folder / "report").read_text().strip()
                if (folder / "report").exists()
                else "goes on"
            )
            told = {
                name: value if isinstance(value, str) else round(value)
                for name, value in found.items()
            }
            print(f"\n{attack}: {json.dumps(told)}")
    return RunState.load(made.out), found


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[RunState, dict[str, float | str]]:
    return play(tmp_path_factory.mktemp("undisturbed") / "d", "quiet")


@pytest.mark.parametrize("attack", ["large", "drip", "bytewise", "many"])
def test_a_keyed_site_costs_its_own_contribution_only(
    tmp_path: Path, attack: str, undisturbed: tuple[RunState, dict[str, float | str]]
) -> None:
    expected, before = undisturbed
    state, found = play(tmp_path / "d", attack)
    for name, arrays in expected.weights.items():
        for key, array in arrays.items():
            np.testing.assert_array_equal(state.weights[name][key], array)
    for ours, theirs in zip(expected.history, state.history, strict=True):
        assert ours.accuracy == theirs.accuracy
        assert set(theirs.client_metrics) == set(SITES[:-1])
    failures = [failure for result in state.history for failure in result.failures]
    assert {failure.client for failure in failures} == {SITES[-1]}
    assert {failure.kind for failure in failures} <= {Refusal.QUOTA, Refusal.FAILED}
    for what in ("link", "app", "disk"):
        assert float(found[what]) < float(before[what]) + 100

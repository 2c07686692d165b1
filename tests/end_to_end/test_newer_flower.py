"""The newest Flower that fedaux allows, beside the oldest, which all other tests have:
a whole deployment, and the way back from it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedaux.server.run_state import RunState
from helpers.deployments import LiveDeployment, playing, processes, until

NEWER = os.environ.get("FEDAUX_NEWER_FLOWER", "")
pytestmark = pytest.mark.skipif(
    not NEWER,
    reason="FEDAUX_NEWER_FLOWER names no folder: pip install --no-deps --target FOLDER 'flwr==1.42.*'",
)
SITES = ("berlin", "rome")
UNITS = ("flower_patches", "quotas", "superlink", "supernode", "run_control")


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What PYTHONPATH is for processes with each of the two versions of Flower."""
    usual = os.environ.get("PYTHONPATH", "")
    paths = {"older": usual, "newer": f"{NEWER}:{usual}"}
    seen = {}
    for name, path in paths.items():
        words = [
            sys.executable,
            "-c",
            "from importlib.metadata import version; print(version('flwr'))",
        ]
        environment = {**os.environ, "PYTHONPATH": path}
        seen[name] = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
    assert (seen["older"][:5], seen["newer"][:5]) == ("1.41.", "1.42.")
    return paths


def test_each_change_to_flower_is_in_effect_in_the_newer_one(
    versions: dict[str, str],
) -> None:
    files = [
        str(Path(__file__).parents[1] / "unit" / "deploy" / f"test_{name}.py")
        for name in UNITS
    ]
    environment = {**os.environ, "PYTHONPATH": versions["newer"]}
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_all_sites_take_part_also_one_that_was_not_upgraded(
    tmp_path: Path, versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", versions["newer"])
    with LiveDeployment(tmp_path / "d", SITES) as made:
        made.start("superlink.sh", "superexec.sh")
        made.register()
        monkeypatch.setenv("PYTHONPATH", versions["older"])
        made.enter_context(playing(made.site("rome") / "supernode.sh"))
        monkeypatch.setenv("PYTHONPATH", versions["newer"])
        made.start_sites("berlin")
        run, apps = made.run(1), set[str]()
        until(
            lambda: (
                apps.update(processes(made.server, "flwr-serverapp").values())
                or run.poll() is not None
            )
        )
        assert run.returncode == 0, (made.server / "run.log").read_text()
        told = {site["name"]: site["versions"] for site in made.status()[1]["sites"]}
    assert apps
    assert not [line for line in apps if "--token " in line]  # that others could read
    (result,) = RunState.load(made.server / "run").history
    assert (sorted(result.client_metrics), result.failures) == (list(SITES), ())
    assert {name: text.partition("flwr ")[2][:4] for name, text in told.items()} == {
        "berlin": "1.42",
        "rome": "1.41",
    }


@pytest.mark.slow
def test_a_backup_is_the_way_back(
    tmp_path: Path, versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer Flower changes the database when it opens it, for good."""
    archive = tmp_path / "before.tar.gz"
    made = LiveDeployment(tmp_path / "d", SITES)
    link = made.server / "superlink.sh"
    with playing(link):
        until(lambda: made.connections() is not None)
        made.register()
        subprocess.run([made.server / "backup.sh", archive], check=True)
        before = {name: node.key for name, node in made.nodes().items()}
    monkeypatch.setenv("PYTHONPATH", versions["newer"])
    with playing(link):
        until(lambda: made.connections() is not None)
        assert {name: node.key for name, node in made.nodes().items()} == before
    monkeypatch.setenv("PYTHONPATH", versions["older"])
    with playing(link):
        until(lambda: "it has ended" in link.with_suffix(".log").read_text(), 60)
        assert "Can't locate revision" in link.with_suffix(".log").read_text()
    made.server.rename(tmp_path / "newer")
    made.server.mkdir(mode=0o700)
    subprocess.run(["tar", "-xpzf", archive, "-C", made.server], check=True)
    with playing(link):
        until(lambda: made.connections() is not None)
        assert {name: node.key for name, node in made.nodes().items()} == before

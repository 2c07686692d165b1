"""The Dockerfile and compose.yaml: the image is built by podman, and a whole federation
runs in containers of it.

$FEDAUX_BUILD asks for it, as packages are downloaded: what `podman build` is told
beside the Dockerfile, if only " ". The base image must be there, and is never pulled.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.deployments import SITES, deploy, status, until
from helpers.harness import free_port

ROOT = Path(__file__).resolve().parents[2]
QUICK = 'set="rounds=2; pretrain.epochs=1; distill.epochs=1"'
INSIDE = "10001"  # who root's containers are, by compose.yaml


def called(
    *words: str | Path, cwd: Path | None = None, seconds: float = 3600
) -> subprocess.CompletedProcess[str]:
    keep = {"PODMAN_USERNS": "keep-id"} if os.getuid() else {}
    environment = {**os.environ, **keep, "FEDAUX_IMAGE": "fedaux-test"}
    return subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def run(*words: str | Path, cwd: Path | None = None) -> str:
    done = called(*words, cwd=cwd)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("podman") is None, reason="needs podman")
@pytest.mark.skipif(
    shutil.which("podman-compose") is None, reason="needs podman-compose, 1.1 or newer"
)
@pytest.mark.skipif(
    "FEDAUX_BUILD" not in os.environ,
    reason="$FEDAUX_BUILD does not ask for an image to be built",
)
def test_a_federation_in_containers_of_the_image(tmp_path: Path) -> None:
    run(
        "podman",
        "build",
        "--pull=never",
        *shlex.split(os.environ["FEDAUX_BUILD"]),
        "--tag",
        "fedaux-test",
        ROOT,
    )
    assert re.match(
        r"fedaux \d",
        run(
            "podman",
            "run",
            "--rm",
            "--network=none",
            "fedaux-test",
            "fedaux",
            "--version",
        ),
    )
    folder = deploy(tmp_path / "hospitals", port=free_port())
    owner = str(os.getuid())
    if owner == "0":
        owner = INSIDE
        run("chown", "-R", INSIDE, folder / "server", folder / "sites")
    compose = ["podman-compose", "--in-pod=false"]
    run(*compose, "up", "--detach", cwd=folder)
    try:
        register = [*compose, "exec", "-T", "superlink", "bash", "/server/register.sh"]
        until(lambda: called(*register, cwd=folder).returncode == 0)
        for service in ("superlink", "superexec", *(f"site-{name}" for name in SITES)):
            told = run(
                *compose, "exec", "-T", service, "cat", "/proc/1/status", cwd=folder
            )
            facts = {
                name: value.split()
                for name, value in (line.split(":", 1) for line in told.splitlines())
            }
            assert facts["Uid"] == [owner] * 4
            assert facts["CapBnd"] == facts["CapEff"] == ["0" * 16]
            assert facts["NoNewPrivs"] == ["1"]
        run(
            *compose,
            "exec",
            "-T",
            "superlink",
            "bash",
            "/server/run.sh",
            "--run-config",
            QUICK,
            cwd=folder,
        )
        code, found = status(folder)
        assert (code, found["state"], found["finished_rounds"]) == (0, "finished", 2)
        assert [site["replies"] >= 2 for site in found["sites"]] == [True, True]
    finally:
        run(*compose, "down", cwd=folder)

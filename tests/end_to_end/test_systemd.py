"""The units: as systemd-analyze finds them, and started by a systemd that is booted in
a container of this machine.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.deployments import AWKWARD, deploy

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)
def test_systemd_takes_the_units_and_finds_them_hardened(tmp_path: Path) -> None:
    units = deploy(tmp_path / AWKWARD) / "systemd"
    (units / "fedaux-site@.service").rename(units / "fedaux-site@berlin.service")
    for unit in units.iterdir():
        done = subprocess.run(
            ["systemd-analyze", "verify", unit],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        # tenths
        words = [
            "systemd-analyze",
            "security",
            "--offline=true",
            "--threshold=25",
            unit,
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


# In mount namespaces of its own: this machine's files with what is written kept in
# memory, booted by systemd-nspawn without a network. $1 is a folder for both sides, $2
# the interpreter's real path, $3 the PATH, $4 the sources.
BOOT = r"""
set -e
mkdir "$1/t"
mount -t tmpfs tmpfs "$1/t"
mkdir "$1/t/upper" "$1/t/work" "$1/t/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/t/upper,workdir=$1/t/work" "$1/t/root"
root="$1/t/root"
for folder in $(dirname "$2") "$4" "$(dirname "${3%%:*}")"; do  # another user may run this Python
  while [ "$folder" != / ]; do chmod o+x "$root$folder"; folder=$(dirname "$folder"); done
done
chroot "$root" useradd --system fedaux
chroot "$root" env PATH="$3" PYTHONPATH="$4" python -m fedaux deploy init /srv/hospitals --site berlin
chroot "$root" chown -R fedaux /srv/hospitals/server /srv/hospitals/sites
cp "$root"/srv/hospitals/systemd/*.service "$root/etc/systemd/system/"
for unit in superlink metrics; do
  mkdir -p "$root/etc/systemd/system/fedaux-$unit.service.d"
  printf '[Service]\nEnvironment="PYTHONPATH=%s"\n' "$4" >"$root/etc/systemd/system/fedaux-$unit.service.d/source.conf"
done
cat >"$root/etc/systemd/system/probe.service" <<UNIT
[Service]
Type=oneshot
Environment="PATH=$3" "PYTHONPATH=$4"
ExecStart=/bin/bash /shared/probe.sh
ExecStopPost=/bin/systemctl poweroff --force
TimeoutStartSec=500
UNIT
systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit --private-network --link-journal=no \
  --bind="$1/shared:/shared" systemd.unit=probe.service
"""

PROBE = r"""
systemctl start fedaux-superlink fedaux-metrics
for _ in $(seq 120); do fedaux deploy status /srv/hospitals --json >/shared/status.json && break; sleep 1; done
python - >/shared/scraped.txt <<'END'
import httpx
print(httpx.get("http://127.0.0.1:9464/metrics", timeout=60).text)
END
for unit in superlink metrics; do
  pid=$(systemctl show --property MainPID --value fedaux-$unit)
  {
    systemctl is-active fedaux-$unit
    grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/$pid/status
    ps -o user= -p $pid
  } >/shared/$unit.txt
  for place in /etc /usr /srv/hospitals/ca /srv/hospitals/server; do
    nsenter --target $pid --mount touch $place/written 2>/dev/null && echo "writes $place" >>/shared/$unit.txt
  done
done
true
"""


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("systemd-nspawn") is None,
    reason="needs systemd-nspawn (Debian: systemd-container)",
)
@pytest.mark.skipif(os.getuid() != 0, reason="only root boots a container")
def test_the_units_run_under_systemd_and_are_kept_where_they_belong(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "probe.sh").write_text(PROBE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = [str(tmp_path), str(Path(sys.executable).resolve()), path, str(SOURCE)]
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", BOOT, "boot", *words],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if (
        not (shared / "superlink.txt").is_file()
        and "Operation not permitted" in done.stderr
    ):
        pytest.skip(f"no container can be booted here: {done.stderr[-300:]}")
    status = json.loads((shared / "status.json").read_text())
    assert (status["state"], status["link"], status["problems"]) == (
        "none",
        True,
        [],
    ), done.stderr[-2000:]
    assert "fedaux_link_up 1.0" in (shared / "scraped.txt").read_text()
    for unit in ("superlink", "metrics"):
        active, *facts, user, places = (shared / f"{unit}.txt").read_text().splitlines()
        assert (active, user, places) == (
            "active",
            "fedaux",
            "writes /srv/hospitals/server",
        )
        assert [fact.split() for fact in facts] == [
            ["CapBnd:", "0" * 16],
            ["NoNewPrivs:", "1"],
            ["Seccomp:", "2"],
        ]

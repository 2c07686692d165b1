"""Shell scripts, systemd units and a Docker Compose file for the server and the sites."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# Scripts hold no paths and no addresses: those stand in the .env file beside them, and a folder may be moved.
_HEAD = """\
#!/usr/bin/env bash
# {what}
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"
here=$PWD
source ./{env}
export FLWR_HOME="$here/flwr-home" FEDAUX_CACHE="${{FEDAUX_CACHE:-$here/cache}}"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export PYTHONPATH="$here${{PYTHONPATH:+:$PYTHONPATH}}"  # for your own module:function beside the settings
command -v flower-superexec >/dev/null || {{ echo "activate the environment that fedaux is installed in" >&2; exit 1; }}
"""

_SUPERLINK = """
exec python -m fedaux.deploy.superlink \\
  --host "$BIND" --port "$PORT" --isolation process --database "$here/superlink.db" \\
  --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key \\
  --enable-supernode-auth --superexec-auth-secret-file superexec.secret \\
  --disable-runtime-dependency-installation
"""

_SUPEREXEC = """
exec flower-superexec --runtime-api-address "$LOCAL" --root-certificates ca.crt \\
  --superexec-auth-secret-file superexec.secret
"""

_CONNECT = """
mkdir -p flwr-home  # how Flower's commands reach the server; written anew, as this folder may have been moved
printf '[superlink.fedaux]\\naddress = "%s"\\nroot-certificates = "%s"\\n' "$LOCAL" "$here/ca.crt" \\
  >flwr-home/config.toml
"""

_REGISTER = """
failed=0
for key in keys/*.pub; do
  echo "$(basename "$key" .pub):"
  flwr supernode register "$key" fedaux --name "$(basename "$key" .pub)" || failed=1
done
[ "$failed" = 0 ] || echo "A key that is registered already need not be registered again." >&2
flwr supernode list fedaux
"""

_RUN = """
exec flwr run app fedaux --stream --run-config "config=\\"$here/fedaux.toml\\" out=\\"$here/run\\"" "$@"
"""

_SUPERNODE = """
# A node that was killed leaves its key in use for a minute, in which the server refuses it: so it tries again.
child='' stopped=''
stop() { stopped=yes; kill -TERM "$child" 2>/dev/null || true; }
trap stop TERM INT
finish() { child=$!; while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done; }
while true; do
  python -m fedaux.deploy.supernode --superlink "$SERVER" --host 127.0.0.1 --port "$PORT" \\
    --root-certificates ca.crt --auth-supernode-private-key key \\
    --node-config "clients=\\"$NAME\\" config=\\"$here/site.toml\\" vault=\\"$here/vault\\"" &
  finish
  [ -z "$stopped" ] || exit 0
  echo "the node ended; it starts again in 15 seconds" >&2
  sleep 15 &
  finish
  [ -z "$stopped" ] || exit 0
done
"""


def _script(what: str, env: str, body: str) -> str:
    return _HEAD.format(what=what, env=env) + body


SERVER_SCRIPTS = {
    "superlink.sh": _script("Where sites call in. Runs until it is stopped.", "server.env", _SUPERLINK),
    "superexec.sh": _script("Runs the server's part of an app. Runs until it is stopped.", "server.env", _SUPEREXEC),
    "register.sh": _script("Lets the sites in whose public keys are in keys/.", "server.env", _CONNECT + _REGISTER),
    "run.sh": _script(
        "Starts a run, or goes on with the one in run/, and shows its log.", "server.env", _CONNECT + _RUN
    ),
}
SITE_SCRIPTS = {
    "supernode.sh": _script("Calls the server and waits for orders. Until stopped.", "site.env", _SUPERNODE)
}


def systemd_units(folder: Path, programs: Path) -> dict[str, str]:
    """Two units for the server, and a template for any site, `fedaux-site@NAME`."""
    here = _escape(folder)
    return {
        "fedaux-superlink.service": _unit(f"{here}/server/superlink.sh", "where sites call in", programs),
        "fedaux-superexec.service": _unit(f"{here}/server/superexec.sh", "the server's part of an app", programs),
        "fedaux-site@.service": _unit(f"{here}/sites/%i/supernode.sh", "site %i", programs),
    }


def _unit(script: str, what: str, programs: Path) -> str:
    return f"""\
[Unit]
Description=fedaux: {what}
After=network-online.target
Wants=network-online.target

[Service]
# User=fedaux
Environment="PATH={_escape(programs)}:/usr/local/bin:/usr/bin:/bin"
ExecStart=/bin/bash "{script}"
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


def _escape(path: Path) -> str:
    """Escaped for systemd, which expands % and $ within quotes."""
    return str(path).replace("%", "%%").replace("$", "$$")


def compose(sites: Iterable[str]) -> str:
    """All services on one machine; a real site uses its own service only, the server the first two."""
    services = "".join(
        f"""\
  site-{name}:
    <<: *fedaux
    volumes: ["./sites/{name}:/site"]  # and your records, where site.toml looks for them
    command: ["bash", "/site/supernode.sh"]
"""
        for name in sites
    )
    return f"""\
# The same scripts in containers: docker compose up --detach
# They need an image named fedaux, or what $FEDAUX_IMAGE says. In a checkout of fedaux:
#   printf 'FROM python:3.11\\nCOPY . /fedaux\\nRUN pip install /fedaux\\n' | docker build --tag fedaux --file - .
# Then: docker compose exec superlink bash /server/register.sh
#       docker compose exec superlink bash /server/run.sh
x-fedaux: &fedaux
  image: ${{FEDAUX_IMAGE:-fedaux}}
  network_mode: host  # the addresses in the .env files hold inside as well
  user: "{os.getuid()}:{os.getgid()}"
  restart: unless-stopped
  stop_grace_period: 30s

services:
  superlink:
    <<: *fedaux
    volumes: ["./server:/server"]
    command: ["bash", "/server/superlink.sh"]
  superexec:
    <<: *fedaux
    volumes: ["./server:/server"]  # and the test and public data, where fedaux.toml looks for them
    command: ["bash", "/server/superexec.sh"]
{services}"""

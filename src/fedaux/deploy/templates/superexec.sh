#!/usr/bin/env bash
# Runs the server's part of an app. Until stopped.
{% include "head.sh" %}
if [ "$(id -u)" = 0 ] && [ "${FEDAUX_ALLOW_ROOT:-}" != yes ]; then
  echo "an app that is started here would run as root: call this as another user (systemd/ and compose.yaml have one)," >&2
  echo "or, if no one else can start one, with FEDAUX_ALLOW_ROOT=yes" >&2
  exit 1
fi

serve() {
  exec python -m fedaux.deploy.superexec --runtime-api-address "$LOCAL" --root-certificates ca.crt \
    --superexec-auth-secret-file superexec.secret
}
pause=5
{% include "keep.sh" %}

#!/usr/bin/env bash
# Calls the server and waits for orders. Until stopped.
{% include "head.sh" %}

# A node that was killed leaves its key in use for a minute, in which the server refuses it: so it tries again.
child='' stopped=''
stop() { stopped=yes; kill -TERM "$child" 2>/dev/null || true; }
trap stop TERM INT
finish() { child=$!; while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done; }
while true; do
  python -m fedaux.deploy.supernode --superlink "$SERVER" --root-certificates ca.crt --auth-supernode-private-key key \
    --node-config "clients=\"$NAME\" config=\"$here/site.toml\" vault=\"$here/vault\"" &
  finish
  [ -z "$stopped" ] || exit 0
  echo "the node ended; it starts again in 15 seconds" >&2
  sleep 15 &
  finish
  [ -z "$stopped" ] || exit 0
done

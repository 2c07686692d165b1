#!/usr/bin/env bash
# Calls the server and waits for orders. Until stopped.
{% include "head.sh" %}

serve() {
  exec python -m fedaux.deploy.supernode --superlink "$SERVER" --root-certificates ca.crt \
    --auth-supernode-private-key key --node-config "clients=\"$NAME\" config=\"$here/site.toml\" vault=\"$here/vault\" server=\"$SERVER\""
}
pause=15  # a node that was killed leaves its key in use for a minute, in which the server refuses it
{% include "keep.sh" %}

#!/usr/bin/env bash
# Starts a run, or goes on with the one in run/, and shows its log. Ends with 0 only if the run is complete.
{% include "head.sh" %}

mkdir -p flwr-home  # how Flower's commands reach the server; written anew, as this folder may have been moved
printf '[superlink.fedaux]\naddress = "%s"\nroot-certificates = "%s"\n' "$LOCAL" "$here/ca.crt" \
  >flwr-home/config.toml

exec python -m fedaux.deploy.run_control --run-config "config=\"$here/fedaux.toml\" out=\"$here/run\"" "$@"

#!/usr/bin/env bash
# Starts a run, or goes on with the one in run/, and shows its log. Ends with 0 only if the run is complete.
{% include "head.sh" %}
{% include "connect.sh" %}

exec python -m fedaux.deploy.run_control --run-config "config=\"$here/fedaux.toml\" out=\"$here/run\"" "$@"

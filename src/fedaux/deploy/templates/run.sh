#!/usr/bin/env bash
# Starts a run, or goes on with the one in run/, and shows its log.
{% include "head.sh" %}
{% include "connect.sh" %}

exec flwr run app fedaux --stream --run-config "config=\"$here/fedaux.toml\" out=\"$here/run\"" "$@"

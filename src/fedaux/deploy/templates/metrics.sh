#!/usr/bin/env bash
# Serves the status of the run to Prometheus on this machine. Runs until it is stopped.
{% include "head.sh" %}

exec python -m fedaux deploy metrics "$here" --port "${METRICS_PORT:-9464}"

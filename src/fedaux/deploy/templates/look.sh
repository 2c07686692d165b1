#!/usr/bin/env bash
# Before a run: counts the sites' records under noise, and leaves a page in look/. Ends with 0 only if the look is complete.
{% include "head.sh" %}

exec ./run.sh --run-config "look=true out=\"$here/look\"" "$@"

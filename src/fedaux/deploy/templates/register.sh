#!/usr/bin/env bash
# Lets the sites in whose public keys are in keys/, each under the name of its file. Ends with 0 only if the server knows them all.
{% include "head.sh" %}

exec python -m fedaux deploy register "$here"

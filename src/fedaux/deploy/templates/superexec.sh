#!/usr/bin/env bash
# Runs the server's part of an app. Runs until it is stopped.
{% include "head.sh" %}

exec flower-superexec --runtime-api-address "$LOCAL" --root-certificates ca.crt \
  --superexec-auth-secret-file superexec.secret

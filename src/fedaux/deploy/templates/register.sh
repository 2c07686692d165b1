#!/usr/bin/env bash
# Lets the sites in whose public keys are in keys/. Ends with 0 only if the server knows all of them.
{% include "head.sh" %}
{% include "connect.sh" %}

failed=0
for key in keys/*.pub; do
  name=$(basename "$key" .pub)
  if told=$(flwr supernode register "$key" fedaux --name "$name" 2>&1); then
    echo "$name: registered"
  elif [[ $told == *"already in use"* ]]; then
    echo "$name: was registered"
  else
    printf '%s: NOT registered\n%s\n' "$name" "$told" >&2
    failed=1
  fi
done
[ "$failed" = 0 ] || { echo "Is superlink.sh up? Then call register.sh again." >&2; exit 1; }

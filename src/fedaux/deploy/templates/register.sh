#!/usr/bin/env bash
# Lets the sites in whose public keys are in keys/.
{% include "head.sh" %}
{% include "connect.sh" %}

failed=0
for key in keys/*.pub; do
  echo "$(basename "$key" .pub):"
  flwr supernode register "$key" fedaux --name "$(basename "$key" .pub)" || failed=1
done
[ "$failed" = 0 ] || echo "A key that is registered already need not be registered again." >&2
flwr supernode list fedaux

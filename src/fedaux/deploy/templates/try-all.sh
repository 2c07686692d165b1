#!/usr/bin/env bash
# Plays the server and all sites on this machine, for one run, and ends everything that it has started.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p try-all
started=""
stop() {
  trap - EXIT
  for process in $started; do kill -TERM "$process" 2>/dev/null || true; done
  wait
}
trap stop EXIT
trap 'exit 130' INT TERM
start() { "./$1" >"try-all/$2.log" 2>&1 & started="$! $started"; }  # the last one ends first

start server/superlink.sh superlink
link=$!
for ((second = 0; ; second++)); do
  ./server/register.sh >try-all/register.log 2>&1 && break
  kill -0 "$link" 2>/dev/null && [ "$second" -lt 60 ] || { cat try-all/*.log >&2; exit 1; }
  sleep 1
done
start server/superexec.sh superexec
{% for name in sites %}
start sites/{{ name }}/supernode.sh {{ name }}
{% endfor %}
echo "The server and {{ sites | length }} site{{ "s" if sites | length != 1 }} are up; their logs are in $PWD/try-all."
./server/run.sh "$@"

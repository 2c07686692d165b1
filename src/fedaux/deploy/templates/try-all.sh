#!/usr/bin/env bash
# Plays the server and all sites on this machine, for one run, and ends everything that it has started.
# If a part ends before the run does, it says which, with the last lines of its log, and stops.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p try-all
names=() processes=() restarts=() run='' started=''
stop() {
  trap - EXIT
  for process in $run $started; do kill -TERM "$process" 2>/dev/null || true; done
  wait
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
start() {
  "./$1" >"try-all/$2.log" 2>&1 &
  names+=("$2") processes+=("$!") restarts+=(0)
  started="$! $started"  # the last one ends first
}
pause() { sleep "$1" & wait "$!" || true; }  # can be interrupted

tell() {  # of the part $1, its last lines
  echo "$2. The last lines of $PWD/try-all/$1.log:" >&2
  tail -n 20 "try-all/$1.log" | sed 's/^/  /' >&2
}

# Says which part of the deployment has ended; ends this script if it stays so, or ends over and over.
watch() {
  local index name status count
  for index in "${!processes[@]}"; do
    name="${names[index]}" status=0
    if ! kill -0 "${processes[index]}" 2>/dev/null; then
      wait "${processes[index]}" || status=$?
      tell "$name" "Cannot continue: $name has ended with exit status $status"
      exit 1
    fi
    count=$(grep -c 'it starts again in' "try-all/$name.log" 2>/dev/null) || true
    [ "${count:-0}" -gt "${restarts[index]}" ] || continue
    restarts[index]=$count
    [ "$count" -lt 5 ] || { tell "$name" "Cannot continue: $name has ended $count times"; exit 1; }
    tell "$name" "$name has ended, and is started again"
  done
}

start server/superlink.sh superlink
for ((second = 0; ; second++)); do
  ./server/register.sh >try-all/register.log 2>&1 && break
  watch
  [ "$second" -lt 60 ] || { cat try-all/superlink.log try-all/register.log >&2; exit 1; }
  pause 1
done
start server/superexec.sh superexec
{% for name in sites %}
start sites/{{ name }}/supernode.sh {{ name }}
{% endfor %}
pause 1  # what cannot start says so at once
watch
echo "The server and {{ sites | length }} site{{ "s" if sites | length != 1 }} are up, and their logs are in $PWD/try-all."
./server/run.sh "$@" &
run=$!
while kill -0 "$run" 2>/dev/null; do
  watch
  pause 1
done
status=0
wait "$run" || status=$?
run=''
exit "$status"

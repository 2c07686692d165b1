# What ends is started again after a pause, until this script is stopped. What ends within a minute, such as a
# node that the server refuses, pauses twice as long each time, up to five minutes.
child='' stopped='' longest=300
next=$pause
stop() { stopped=yes; kill -TERM "$child" 2>/dev/null || true; }
trap stop TERM INT
finish() { child=$!; while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done; }
while true; do
  began=$SECONDS
  serve &
  finish
  [ -z "$stopped" ] || exit 0
  [ $((SECONDS - began)) -lt 60 ] || next=$pause
  echo "it has ended, and it starts again in $next seconds" >&2
  sleep "$next" &
  finish
  [ -z "$stopped" ] || exit 0
  next=$((next * 2 < longest ? next * 2 : longest))
done

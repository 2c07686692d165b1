# What ends is started again after a pause, until this script is stopped.
child='' stopped=''
stop() { stopped=yes; kill -TERM "$child" 2>/dev/null || true; }
trap stop TERM INT
finish() { child=$!; while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done; }
while true; do
  serve &
  finish
  [ -z "$stopped" ] || exit 0
  echo "it has ended; it starts again in $pause seconds" >&2
  sleep "$pause" &
  finish
  [ -z "$stopped" ] || exit 0
done

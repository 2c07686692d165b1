#!/usr/bin/env bash
# Copies what must not be lost into a new archive: backup.sh ARCHIVE. It holds keys: keep it as you keep them.
# Nothing has to be stopped for it. Records, caches and copies of images are left out.
caller=$PWD
{% include "head.sh" %}
umask 077
tries=5

[ $# = 1 ] || { echo "usage: backup.sh ARCHIVE" >&2; exit 2; }
case $1 in /*) archive=$1 ;; *) archive=$caller/$1 ;; esac
[ ! -e "$archive" ] || { echo "$1 exists, and an old backup is not replaced: name a new one" >&2; exit 1; }
staged=$(mktemp -d "$(dirname "$archive")/.backup-XXXXXX")
trap 'rm -rf "$staged"' EXIT

# `last` is copied after everything else, so that it is never older: it counts what has left.
shopt -s nullglob
leave=(--exclude=decoded --exclude=__pycache__ --exclude=.lock --exclude=run.lock "--exclude=*.log")
{% if env == "server.env" %}
party=server
names=(fedaux.toml server.env *.sh *.py classes.txt app roster.json run ca.crt server.pem server.key superexec.secret keys)
last=(accounts.json)
{% else %}
party=site
names=(site.toml site.env *.sh *.py classes.txt ca.crt key key.pub vault)
last=(vault/account.jsonl vault/*/account.jsonl)
# A site that went back into a secure sum with its old secrets could mask two vectors alike.
leave+=(--exclude=sums --exclude=account.jsonl)
{% endif %}

present() {  # sets `there` to those of these names that are there
  there=()
  for name in "$@"; do [ ! -e "$name" ] || there+=("$name"); done
}
saved() { cksum run/state.safetensors 2>/dev/null || true; }  # another one after every round
copy() {  # fails if a round was saved, or a file replaced, in the meantime; links are followed
  local before
  before=$(saved)
  present "${names[@]}"
  tar -chf "$staged/tar" "${leave[@]}" "${there[@]}" || return 1
  present "${last[@]}"
  [ -z "${there[*]:-}" ] || tar -rhf "$staged/tar" "${there[@]}" || return 1
  [ "$before" = "$(saved)" ]
}
for ((try = 1; ; try++)); do
  copy && break
  [ "$try" -lt "$tries" ] || {
    echo "$here changed while it was copied, $tries times. Try again between two rounds" >&2
    exit 1
  }
done
{% if env == "server.env" %}
# SQLite copies its own database, while the SuperLink keeps writing.
if [ -e superlink.db ]; then
  python -c 'import sqlite3, sys
here, there = (sqlite3.connect(path) for path in sys.argv[1:])
here.backup(there)' superlink.db "$staged/superlink.db"
  tar -rf "$staged/tar" -C "$staged" superlink.db
fi
{% endif %}
gzip "$staged/tar"
mv "$staged/tar.gz" "$archive"
echo "$1 holds the $party"

"""The README of a deployment: what each party gets, the commands in order, how to stop, and who can do what."""

from __future__ import annotations

from collections.abc import Sequence


def readme(sites: Sequence[str], server: str) -> str:
    starts = "\n".join(f"./sites/{name}/supernode.sh      # terminal {place}" for place, name in enumerate(sites, 3))
    checks = "\n".join(f"fedaux deploy check sites/{name}" for name in sites)
    return f"""\
# A fedaux federation of {len(sites)} site{"" if len(sites) == 1 else "s"}: {", ".join(sites)}

The server is found at `{server}`. All commands need the Python environment that fedaux is installed in, and the same
version of fedaux everywhere.

## On one machine, to try it

Each of these runs until it is stopped (Ctrl-C); give each a terminal of its own, in this folder.

```bash
./server/superlink.sh        # terminal 1: where sites call in
./server/superexec.sh        # terminal 2: runs the server's part
```

Once, as soon as the first is up:

```bash
./server/register.sh         # lets in the sites whose public keys are in server/keys/
```

Before a site is started, it can be checked; nothing is sent:

```bash
{checks}
```

```bash
{starts}
```

Then the run itself. It shows its log and leaves everything in `server/run/`:

```bash
./server/run.sh
./server/run.sh --run-config 'set="rounds=3; seed=1"'      # with other settings than fedaux.toml
```

A run that was cut off goes on after its last whole round when `run.sh` is called again.

## With real sites

1. **The server** keeps `server/` and `ca/`. `ca/ca.key` can make certificates that every site trusts: best on a disk
   that is not connected.
2. **Each site** gets its folder of `sites/`, without `key` and `key.pub`, by a way on which it can be sure of
   `ca.crt`. It makes its own key, which never leaves it:

   ```bash
   fedaux deploy key NAME       # writes NAME/key and NAME/key.pub
   ```

   and sends only `key.pub` to the server, which stores it as `server/keys/NAME.pub` and calls `server/register.sh`.
3. **Each site** says in `site.toml` where its records are and what it may reveal, and calls `fedaux deploy check NAME`.
   `vault/` appears on the first run. It is the site's memory of what it has revealed: back it up and never delete it,
   or the same budget is spent twice.
4. **The server** says in `fedaux.toml` what is learned, with labelled test data and public data of its own.
5. Start as above, or with systemd: adapt `systemd/`, which holds the paths of this machine, then

   ```bash
   sudo cp systemd/fedaux-superlink.service systemd/fedaux-superexec.service /etc/systemd/system/      # server
   sudo systemctl enable --now fedaux-superlink fedaux-superexec
   sudo cp systemd/fedaux-site@.service /etc/systemd/system/                                           # site
   sudo systemctl enable --now fedaux-site@NAME
   ```

   or with Docker: `compose.yaml` says how.

## To stop

Ctrl-C in its terminal, or `kill` the process of a script (not -9); `systemctl stop`; `docker compose down`. Sites
first, then superexec, then superlink. A site that was killed is refused for a minute; its script tries until it is let
in. The server's commands are Flower's own, with its settings:

```bash
export FLWR_HOME="$PWD/server/flwr-home"
flwr list fedaux                           # runs
flwr stop RUN_ID fedaux                    # end one
flwr supernode list fedaux                 # sites
flwr supernode unregister NODE_ID fedaux   # shut one out for good
```

## Who can do what

- Sites know the server by `ca.crt`; the server knows sites by their keys. All traffic is encrypted.
- The server sends no code. `supernode.sh` refuses apps that carry any, as Flower's own node would not: use the script.
- Runs are started and keys are registered from the server's own machine only. `superlink.sh` refuses other callers, as
  Flower's own server would not. Behind a proxy on the same machine, pass on nothing but `/v1/fleet/` and `/health`.
- Whoever has an account on the server's machine can start runs. Give accounts accordingly.
- Clocks: the server refuses a site whose clock is more than 5 seconds ahead of its own, or 5 minutes behind.
"""

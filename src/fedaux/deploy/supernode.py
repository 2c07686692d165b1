"""`flower-supernode` with the same options, which runs no code but the fedaux that is installed at the site.

Its local API, from which orders are taken, is open to its own user alone: see `runtime_socket`.

Whoever starts a Flower app sends its code to the sites, and a plain SuperNode runs that code beside the private
records: a site's settings would mean nothing. So an app is refused here unless it only names its components, and its
ClientApp is fedaux's own.

    python -m fedaux.deploy.supernode --superlink example.org:8443 ...
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from logging import ERROR, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaux.deploy.server_checks import check_clock

if TYPE_CHECKING:
    from flwr.supercore.fab import Fab

CLIENT_APP = "fedaux.flower.client_app:app"
PROJECT = "pyproject.toml"
FILES = {PROJECT, ".info/CONTENT"}
MAX_BYTES = 2**16  # of the bundle, and of each file in it: an app of names alone has some hundred
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")  # names and versions of which Flower makes the names of folders


def rejection_reason(bundle: bytes) -> str:
    """Why this site refuses an app, given its bundle; empty if it runs it."""
    if len(bundle) > MAX_BYTES:
        return f"it has {len(bundle):,} bytes; an app of names alone has at most {MAX_BYTES:,}"
    try:
        with zipfile.ZipFile(BytesIO(bundle)) as archive:
            names = archive.namelist()
            large = [info.filename for info in archive.infolist() if info.file_size > MAX_BYTES]
            foreign = sorted(set(names) - FILES)
            if foreign or len(names) != len(set(names)):
                return f"it carries files of its own: {', '.join(foreign or names)[:200]}"
            if large:
                return f"{', '.join(large)} has more than {MAX_BYTES:,} bytes"
            with archive.open(PROJECT) as file:
                text = file.read(MAX_BYTES + 1).decode()
        project = tomllib.loads(text)
        app = project["tool"]["flwr"]["app"]
        labels = [project["project"]["name"], project["project"]["version"], app["publisher"]]
        client, others = app["components"].get("clientapp"), set(app["components"]) - {"clientapp", "serverapp"}
    except Exception as error:  # odd archives and texts fail in many ways
        return f"it is no Flower app: {str(error)[:200]}"
    if not all(isinstance(label, str) and PLAIN.fullmatch(label) for label in labels):
        return f"its name, version or publisher is none: {str(labels)[:200]}"
    if client != CLIENT_APP or others:
        return f"it wants to run {', '.join([str(client), *sorted(others)])[:200]} here, not {CLIENT_APP}"
    return ""


def clock_problem(words: Sequence[str]) -> str:
    """Why the server may have refused a node with this command line; "" if clocks agree or cannot be compared."""
    options = dict(pairwise(words))
    address, ca = options.get("--superlink", ""), Path(options.get("--root-certificates", ""))
    found = check_clock(address, ca) if address and ca.is_file() else None
    return f"this machine's clock is {found.detail}; {found.remedy}" if found and found.ok is False else ""


def main() -> None:
    from flwr.common.logger import log
    from flwr.supernode import start_client_internal as internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    from fedaux.deploy.runtime_socket import private_socket, serve_at

    pull = internal._pull_and_store_message

    def pull_verified(*args: Any, **kwargs: Any) -> int | None:
        """Flower verifies an app only if there are trusted entities and the app has a licence."""
        get = kwargs["get_fab"]
        kwargs["get_fab"] = lambda name, run: replace(get(name, run), verifications={"valid_license": "fedaux"})
        kwargs["trusted_entities"] = {"fedaux": "itself"}
        return pull(*args, **kwargs)

    def verify(fab: Fab, trusted_entities: dict[str, str]) -> bool:
        reason = rejection_reason(fab.content)
        if reason:
            log(WARNING, "An app was refused: %s.", reason)
        return not reason

    internal._pull_and_store_message = pull_verified
    internal._verify_fab = verify
    failed = False
    try:
        with private_socket() as path:
            serve_at(path)
            flower_supernode()
    except Exception as error:
        log(ERROR, "The node has failed.", exc_info=error)
        failed = True
    finally:  # a server refuses whose clock is wrong, with a 401 that does not say so
        problem = clock_problem(sys.argv[1:])
        if problem:
            log(WARNING, "The node has ended: %s.", problem)
    if failed:
        os._exit(1)  # else its threads would keep alive a process that does nothing


if __name__ == "__main__":
    main()

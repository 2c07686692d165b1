"""`flower-supernode` with the same options, which runs no code but the fedaux that is installed at the site.

Whoever starts a Flower app sends its code to the sites, and a plain SuperNode runs that code beside the private
records: a site's settings would mean nothing. So an app is refused here unless it only names its components, and its
ClientApp is fedaux's own.

    python -m fedaux.deploy.supernode --superlink example.org:8443 ...
"""

from __future__ import annotations

import tomllib
import zipfile
from dataclasses import replace
from io import BytesIO
from logging import WARNING
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.supercore.fab import Fab

CLIENT_APP = "fedaux.flower.client_app:app"
FILES = {"pyproject.toml", ".info/CONTENT"}


def rejection_reason(bundle: bytes) -> str:
    """Why this site refuses an app, given its bundle; empty if it runs it."""
    try:
        with zipfile.ZipFile(BytesIO(bundle)) as archive:
            names, text = archive.namelist(), archive.read("pyproject.toml").decode()
        parts = tomllib.loads(text)["tool"]["flwr"]["app"]["components"]
        client, others = parts.get("clientapp"), set(parts) - {"clientapp", "serverapp"}
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError, TypeError) as error:
        return f"it is no Flower app: {error}"
    foreign = sorted(set(names) - FILES)
    if foreign or len(names) != len(set(names)):
        return f"it carries files of its own: {', '.join(foreign or names)}"
    if client != CLIENT_APP or others:
        return f"it wants to run {', '.join([str(client), *sorted(others)])} here, not {CLIENT_APP}"
    return ""


def main() -> None:
    from flwr.common.logger import log
    from flwr.supernode import start_client_internal as internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

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
    flower_supernode()


if __name__ == "__main__":
    main()

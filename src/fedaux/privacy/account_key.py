"""A client's signature of how many entries its account has: the server keeps it, and shows it with every order.

The key lies beside the account and never changes, so a copy of the account, however old, knows the signatures of all
later ones. A number that this client has not signed is not believed: a server can make one up.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path

FILE = "account.key"
SIZE = 32  # bytes
log = logging.getLogger(__name__)


def create_key(folder: Path) -> None:
    """Unless there is one. Not synced: what a power cut leaves of it counts as none."""
    if not _key(folder):
        with os.fdopen(os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secrets.token_bytes(SIZE))


def sign(folder: Path, entries: int) -> str:
    """ "" where there is no key yet."""
    key = _key(folder)
    return hmac.new(key, f"fedaux account: {entries}".encode(), hashlib.sha256).hexdigest() if key else ""


def is_believed(folder: Path, entries: int, signature: str) -> bool:
    """Whether this account has had so many entries, as far as it can know.

    One without a key believes everything: it was begun by an older version, or it is new because the old one was lost.
    """
    expected = sign(folder, entries)
    believed = not expected or hmac.compare_digest(expected.encode(), signature.encode())
    if not believed:
        log.warning(
            "the server says that the account in %s has had %d entries, and does not show its signature: ignored",
            folder,
            entries,
        )
    return believed


def _key(folder: Path) -> bytes:
    try:
        key = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return b""
    return key if len(key) == SIZE else b""

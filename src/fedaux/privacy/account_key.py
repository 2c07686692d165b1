"""The key of a privacy account, with which a client signs how many entries it has.

The server keeps the signature, and shows it with every order: so a client finds out
that its account is an old copy.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path

ACCOUNT_KEY_FILE = "account.key"
KEY_SIZE = 32  # bytes
log = logging.getLogger(__name__)


def create_key(folder: Path) -> None:
    """Create the key unless there is one. It is not synced: a key damaged by a power
    cut counts as missing.

    The key lies next to the account and never changes, so that even an old copy of the
    account recognises all later signatures.
    """
    if _key(folder):
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    descriptor = os.open(folder / ACCOUNT_KEY_FILE, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_SIZE))


def sign(folder: Path, entries: int) -> str:
    """Return the client's signature of the number of entries in its account, or "" if
    there is no key yet.
    """
    key = _key(folder)
    if not key:
        return ""
    message = f"fedaux account: {entries}".encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def verify_count(folder: Path, entries: int, signature: str) -> bool:
    """Whether this account has had this number of entries, as far as it can tell.

    A number that this client has not signed is rejected, since a server can make one
    up. An account without a key accepts every number: it is new because the old one was
    lost, or has lost its key.
    """
    expected = sign(folder, entries)
    if not expected:
        return True
    if hmac.compare_digest(expected.encode(), signature.encode()):
        return True
    log.warning(
        (
            "the server says that the account in %s has had %d entries, and does not "
            "show its signature: ignored"
        ),
        folder,
        entries,
    )
    return False


def _key(folder: Path) -> bytes:
    try:
        key = (folder / ACCOUNT_KEY_FILE).read_bytes()
    except FileNotFoundError:
        return b""
    return key if len(key) == KEY_SIZE else b""

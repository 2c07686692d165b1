"""The roster of secure sums: each site's public key, pinned on every site's own disk,
so that a server invents none.

A site has `sum.key` (private, made at the site) and `roster.json`, the same at all
sites: owners compare its fingerprint, by telephone for instance, as they would that of
a key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedaux.core.errors import SettingsError
from fedaux.core.io import write_atomically

SUM_KEY_FILE, ROSTER_FILE = "sum.key", "roster.json"
_KEY_SIZE = 32
Roster = Mapping[str, bytes]  # the Ed25519 public key of each site, by name


def make_signing_key(folder: Path, replace: bool = False) -> bytes:
    """Make the site's key in `folder` unless it has one; return the public key."""
    path = folder / SUM_KEY_FILE
    if replace or not path.exists():
        write_atomically(
            path, Ed25519PrivateKey.generate().private_bytes_raw(), private=True
        )
    return load_signing_key(folder).public_key().public_bytes_raw()


def load_signing_key(folder: Path) -> Ed25519PrivateKey:
    """Read the site's key."""
    path = folder / SUM_KEY_FILE
    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except FileNotFoundError as error:
        raise SettingsError(
            f"Cannot take part in secure sums: {path} is missing, and the roster must "
            "name it. Run `fedaux deploy key` to make one."
        ) from error
    except ValueError as error:
        raise SettingsError(
            f"Cannot take part in secure sums: {path} is damaged, because it should "
            f"have {_KEY_SIZE} bytes. Restore it, or make another key with `fedaux "
            "deploy key --replace`."
        ) from error


def simulated_key(name: str) -> Ed25519PrivateKey:
    """Return the key of a simulated site, which anyone can compute: all sites of a
    simulation are one process.
    """
    return Ed25519PrivateKey.from_private_bytes(
        hashlib.sha256(f"simulated site {name}".encode()).digest()
    )


def read_roster(path: Path) -> dict[str, bytes]:
    """Read the names and public keys of all sites."""
    try:
        roster = {
            str(name): bytes.fromhex(key)
            for name, key in json.loads(path.read_bytes())["sites"].items()
        }
    except FileNotFoundError as error:
        raise SettingsError(
            f"Cannot take part in secure sums: {path} is missing, the roster of all "
            "sites. Ask the server for the one that `fedaux deploy` writes."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"Cannot read {path}: it is no roster, which would be {{'sites': {{NAME: "
            "public key in hex}}. Ask the server for the one that `fedaux deploy` "
            "writes."
        ) from error
    if len(set(roster.values())) != len(roster):
        raise SettingsError(
            f"Cannot use {path}: it has one key under two names. Make a key at each "
            "site with `fedaux deploy key`."
        )
    return roster


def write_roster(path: Path, roster: Roster) -> None:
    """Write the roster. The same sites give the same bytes."""
    sites = {name: roster[name].hex() for name in sorted(roster)}
    write_atomically(path, json.dumps({"sites": sites}, indent=1).encode() + b"\n")


def roster_fingerprint(roster: Roster) -> str:
    """Return what owners compare: a hash of 256 bits of all names and keys, in groups
    of four hexadecimal digits.

    Half of it would not do: a server that may choose two rosters finds a collision of
    80 bits.
    """
    facts = json.dumps([(name, roster[name].hex()) for name in sorted(roster)]).encode()
    digits = hashlib.sha256(facts).hexdigest()
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))

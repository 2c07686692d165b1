"""The records that a site holds out: it never trains on them, and tests models on them.

The site splits them off by a secret of its own, which lies in its vault, so that the
same records stay held out in every run, and nobody else can tell which they are. The
split goes by units of privacy: all records of a person are on the same side.

A record's side depends on how it is encoded. With another schema, other records are
held out, on which earlier models have trained: the site's owner is warned.

Both parts of two neighbouring data sets are neighbours as well, or equal. So whatever
is proven of an answer that is made from all records also holds for one that is made
from a part of them (docs/proofs.md, "Records that are held out").
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.client.site import Site
from fedaux.config.sections import PrivacyConfig
from fedaux.core.io import write_atomically
from fedaux.core.rng import derive_seed
from fedaux.data.records import Records, is_text
from fedaux.data.tables import schema_of

SECRET_FILE = "held-out.key"
SPLIT_FILE = "held-out.json"  # how the records were read and divided last time
_BLOCK = 4096  # records that are read at a time
Ranks = NDArray[np.uint64]
log = logging.getLogger(__name__)


def split_records(
    records: Records, share: float, secret: bytes, privacy: PrivacyConfig
) -> tuple[Records, Records]:
    """Return the records to train on, and those that are held out."""
    return _parts(records, held_out_positions(records, share, secret, privacy))


def held_out_positions(
    records: Records, share: float, secret: bytes, privacy: PrivacyConfig
) -> NDArray[np.bool_]:
    """Return for each record whether it is held out."""
    return lowest_units(unit_ranks(records, secret, privacy.unit), share, privacy)


def _parts(records: Records, held_out: NDArray[np.bool_]) -> tuple[Records, Records]:
    return (
        records.take(np.flatnonzero(~held_out)),
        records.take(np.flatnonzero(held_out)),
    )


def lowest_units(
    ranks: Ranks, share: float, privacy: PrivacyConfig
) -> NDArray[np.bool_]:
    """Return for each record whether its unit, which has this rank, is held out.

    Under replace-one, neighbours have the same number of units, so both parts must: the
    units of lowest rank are held out, a fixed number of them. Under add-remove, a unit
    must not change the part that another one is in: it is held out if its own rank is
    low.
    """
    if privacy.adjacency == "add-remove":
        return np.asarray(ranks < int(share * 2**64))
    units, unit_of_record = np.unique(ranks, return_inverse=True)
    if privacy.unit == "person":
        return np.asarray(unit_of_record < round(share * len(units)))
    # equal records have equal ranks: any of them may be on either side
    lowest = np.argsort(ranks, kind="stable")[: round(share * len(ranks))]
    chosen = np.zeros(len(ranks), bool)
    chosen[lowest] = True
    return chosen


def unit_ranks(records: Records, secret: bytes, unit: str) -> Ranks:
    """Return a number for each record that looks random to whoever lacks the secret. It
    is decided by the record's content, or by the person it belongs to, and not by the
    order of the file.
    """
    ranks = np.empty(len(records), np.uint64)
    if unit == "person":
        for position, person in enumerate(records.persons.tolist()):
            ranks[position] = _rank(secret, str(person).encode())
        return ranks
    labels = np.full(len(records), -1) if records.y is None else records.labels
    for rows in records.blocks(_BLOCK):
        contents = records.gather(rows)
        for position, content in enumerate(contents, rows.start):
            encoded = _bytes_of(content, is_text(contents))
            label = int(labels[position]).to_bytes(8, "big", signed=True)
            ranks[position] = _rank(secret, label + encoded)
    return ranks


def _bytes_of(content: Any, text: bool) -> bytes:
    if text:
        return str(content).encode("utf-8", "surrogatepass")
    return np.ascontiguousarray(content).tobytes()


def _rank(secret: bytes, content: bytes) -> int:
    digest = hashlib.blake2b(content, digest_size=8, key=secret).digest()
    return int.from_bytes(digest, "big")


def secret_of(site: Site, client: str) -> bytes:
    """Return the secret by which a client's records are split; it is drawn once. In a
    simulation it follows from the seed, so that a run can be repeated.
    """
    if site.is_simulated:
        seed = derive_seed(site.config.seed, "held-out", client)
        return seed.to_bytes(8, "big")
    path = site.account_folder(client) / SECRET_FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, secrets.token_bytes(32), private=True)
    return path.read_bytes()


def warn_of_new_split(site: Site, client: str, records: Records) -> None:
    """Warn the site's owner in the log if other records are held out than before,
    because they are read or divided in another way. The vault has the last way.
    """
    config = site.config
    schema = schema_of(config.data)
    form = "text" if is_text(records.x) else f"{records.x.dtype} {records.shape}"
    now = {
        "data.site_test_fraction": config.data.site_test_fraction,
        "privacy.unit": config.privacy.unit,
        "privacy.adjacency": config.privacy.adjacency,
        "the schema of the table": schema.hash if schema else "",
        "the form of a record": form,
    }
    path = site.account_folder(client) / SPLIT_FILE
    before = json.loads(path.read_bytes()) if path.exists() else now
    changed = [name for name, value in now.items() if before.get(name) != value]
    if changed:
        log.warning(
            "This site now holds out other records than in earlier runs, because these "
            "have changed: %s. Models of those runs have trained on some of them, so do "
            "not test these models here again.",
            ", ".join(changed),
        )
    if changed or not path.exists():
        write_atomically(path, json.dumps(now).encode(), private=True)


def split_of(site: Site, client: str, records: Records) -> tuple[Records, Records]:
    """Return the client's records to train on and those held out, by the site's own
    settings.
    """
    config = site.config
    share = config.data.site_test_fraction
    if share == 0:
        return records, records.take(np.arange(0))
    secret = secret_of(site, client)
    rows = b"" if records.rows is None else records.rows.tobytes()
    settings = (secret, share, config.privacy.unit, config.privacy.adjacency)
    key = hashlib.sha256(repr((id(records.x), len(records), settings)).encode() + rows)
    # an order loads its records several times, and ranking them reads them all
    known = _splits.get(key.digest())
    if known is None or known[0]() is not records.x:
        if not site.is_simulated:
            warn_of_new_split(site, client, records)
        held_out = held_out_positions(records, share, secret, config.privacy)
        known = weakref.ref(records.x), held_out
        _splits[key.digest()] = known
    return _parts(records, known[1])


# by a hash of records and settings: the array, as long as it lives, and what is held out
_splits: dict[bytes, tuple[Callable[[], object], NDArray[np.bool_]]] = {}

"""Overlap of private and public data: private records among public ones would be shown,
sent and distilled on as public, so it is refused.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core.errors import FedauxError
from fedaux.core.rng import numpy_stream
from fedaux.data.records import Records, is_text

# records of a set that are compared, drawn at random from a larger one
COMPARED_RECORDS = 50_000
TOLERATED = 0.01  # share of equal records that may be chance; a notice tells of them


class OverlapError(FedauxError, ValueError):
    """Public data contain private records."""


@dataclass(frozen=True)
class Shared:
    """How many of the compared records of one set are in the other as well."""

    count: int
    compared: int
    # share of records that occur more than once in their own set: equality then proves
    # nothing
    repeats: float

    @property
    def by_chance(self) -> bool:
        # Tables of few values repeat themselves: a count has its Poisson deviation.
        expected = 3 * self.repeats * self.compared
        likely = expected + 3 * math.sqrt(expected)
        return self.count <= max(self.compared * TOLERATED, likely)


def shared_records(first: Records, second: Records) -> Shared:
    """Count the records that two sets share, byte for byte. Blank records, of a single
    value, are left out.
    """
    comparable = (
        first.shape == second.shape
        and is_text(first.x) == is_text(second.x)
        and first.x.dtype == second.x.dtype
    )
    if not comparable:
        return Shared(0, min(len(first), len(second)), 0.0)
    few, many = sorted([_digests(first), _digests(second)], key=len)
    distinct = set(many)
    count = sum(digest in distinct for digest in few)
    unique = len(set(few)) + len(distinct)
    repeats = 1 - unique / max(1, len(few) + len(many))
    return Shared(count, len(few), repeats)


# digests of whole arrays, by `id`, each with its array as long as that lives
_known_digests: dict[int, tuple[Callable[[], object], list[bytes]]] = {}


def _digests(records: Records) -> list[bytes]:
    """Return a digest of each record. Those of whole arrays are cached, since all seeds
    of a study need them.
    """
    if records.rows is not None:
        return _hashed(records)
    array, digests = _known_digests.get(id(records.x), (lambda: None, []))
    if array() is not records.x:
        digests = _hashed(records)
        _known_digests[id(records.x)] = weakref.ref(records.x), digests
    return digests


def _hashed(records: Records) -> list[bytes]:
    if len(records) > COMPARED_RECORDS:
        rng = numpy_stream(0, "overlap")
        drawn = rng.choice(len(records), COMPARED_RECORDS, replace=False)
        records = records.take(np.sort(drawn))
    digests = []
    for rows in records.blocks(4096):
        for row in records.gather(rows):
            content = _content(row)
            if content:
                digests.append(hashlib.blake2b(content, digest_size=12).digest())
    return digests


def _content(row: Any) -> bytes:
    """The bytes of a record, none if it is blank."""
    if isinstance(row, str):
        return row.encode("utf-8", "surrogatepass") if row.strip() else b""
    blank = row.min() == row.max()
    return b"" if blank else np.ascontiguousarray(row).tobytes()


def refuse_same_source(data: DataConfig, aux: AuxConfig) -> None:
    """Raise an error if private and public data come from the same files, before any of
    them is read.
    """
    same_kind = aux.source == data.source and aux.options == data.options
    if not (aux.source and aux.path and same_kind):
        return
    public = Path(aux.path).expanduser().resolve()
    if public == Path(data.path).expanduser().resolve():
        raise OverlapError(
            "Cannot use the public data: aux.path and data.path are the same, "
            f"{aux.path}, so the public data would be the private records themselves. "
            "Name a folder of other, public records in [aux], or delete aux.source and "
            "aux.path to hold some out of the private ones."
        )


def refuse_overlap(private: Records, public: Records) -> str:
    """Raise an error if public data contain private records; return a notice of equal
    records that may be chance, or "".
    """
    shared = shared_records(private, public)
    if not shared.by_chance:
        raise OverlapError(
            f"Cannot use the public data: of {shared.compared} records compared, "
            f"{shared.count} are both in the private data and in the auxiliary data, "
            "which is shown and sent as public. Take them out of one of the two: "
            "aux.path must hold other, public records."
        )
    if not shared.count:
        return ""
    return (
        f"{shared.count} of {shared.compared} records compared are both private and "
        "auxiliary. Are they public?"
    )

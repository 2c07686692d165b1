"""Records that two sets share. Private records among public ones would be shown, sent and distilled on as public."""

from __future__ import annotations

import hashlib
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

SAMPLE = 50_000  # records of a set that are compared, drawn at random from a larger one
TOLERATED = 0.01  # share of equal records that may be chance; a notice tells of them


class OverlapError(FedauxError, ValueError):
    """Public data that hold private records."""


@dataclass(frozen=True)
class Shared:
    """How many of the compared records of one set are in the other as well."""

    count: int
    compared: int
    repeats: float  # share of records that occur more than once in their own set: equality then proves nothing

    @property
    def by_chance(self) -> bool:
        return self.count <= self.compared * max(TOLERATED, 3 * self.repeats)


def shared_records(one: Records, other: Records) -> Shared:
    """By content, equal to the byte. Blank records, of a single value, are left out."""
    if one.shape != other.shape or is_text(one.x) != is_text(other.x) or one.x.dtype != other.x.dtype:
        return Shared(0, min(len(one), len(other)), 0.0)
    first, second = _digests(one), _digests(other)
    small, large = (first, set(second)) if len(first) <= len(second) else (second, set(first))
    distinct = len(set(first)) + len(set(second))
    repeats = 1 - distinct / max(1, len(first) + len(second))
    return Shared(sum(digest in large for digest in small), len(small), repeats)


def _digests(records: Records) -> list[bytes]:
    """Of whole arrays computed once: all seeds of a study ask."""
    if records.rows is not None:
        return _hashed(records)
    reference, digests = _known.get(id(records.x), (lambda: None, []))
    if reference() is not records.x:
        digests = _hashed(records)
        _known[id(records.x)] = weakref.ref(records.x), digests
    return digests


_known: dict[int, tuple[Callable[[], object], list[bytes]]] = {}


def _hashed(records: Records) -> list[bytes]:
    if len(records) > SAMPLE:
        drawn = numpy_stream(0, "overlap").choice(len(records), SAMPLE, replace=False)
        records = records.take(np.sort(drawn))
    return [
        _digest(row)
        for rows in records.blocks(4096)
        for row in records.gather(rows)
        if (row.strip() if isinstance(row, str) else row.min() != row.max())
    ]


def _digest(row: Any) -> bytes:
    data = row.encode("utf-8", "surrogatepass") if isinstance(row, str) else np.ascontiguousarray(row).tobytes()
    return hashlib.blake2b(data, digest_size=12).digest()


def refuse_same_source(data: DataConfig, aux: AuxConfig) -> None:
    """The same files cannot be private and public: refused before any of them is read."""
    if not (aux.source and aux.path) or (aux.source, aux.options) != (data.source, data.options):
        return
    if Path(aux.path).expanduser().resolve() == Path(data.path).expanduser().resolve():
        raise OverlapError(
            f"aux.path and data.path are the same, {aux.path}: the public data would be the private records "
            "themselves. Name a folder of other, public records in [aux], or delete aux.source and aux.path to hold "
            "some out of the private ones."
        )


def refuse_overlap(private: Records, public: Records) -> str:
    """An error if the public data hold private records; else a notice of equal records that may be chance, or ""."""
    found = shared_records(private, public)
    if not found.by_chance:
        raise OverlapError(
            f"of {found.compared} records compared, {found.count} are both in the private data and in the auxiliary "
            "data, which is shown and sent as public. Take them out of one of the two: aux.path must hold other, "
            "public records."
        )
    if not found.count:
        return ""
    return f"{found.count} of {found.compared} records compared are both private and auxiliary; are they public?"

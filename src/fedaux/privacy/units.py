"""The privacy unit: a record, or a person with all of their records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import unknown_name
from fedaux.data.records import Indices, Records

UNITS = ("record", "person")
NEIGHBOURS = {  # (adjacency, unit): what two neighbouring data sets differ in
    ("replace-one", "record"): "one record of a client exchanged for any other",
    (
        "add-remove",
        "record",
    ): "one record of a client added or removed, at a declared size",
    (
        "replace-one",
        "person",
    ): "all records of one person at a client exchanged for any others",
    (
        "add-remove",
        "person",
    ): "all records of one person at a client added or removed, at a declared size",
}


def public_size(records: Records, privacy: PrivacyConfig) -> int:
    """The number of units that every reply states, private or not: the same for
    neighbours.
    """
    if privacy.adjacency == "add-remove":
        return privacy.declared_records
    return (
        len(records)
        if privacy.unit == "record"
        else len(Units.of(records, privacy.unit, 1).rows)
    )


@dataclass(frozen=True, eq=False)
class Units:
    """The privacy units of a data set: `rows` has the positions of each unit's records,
    `shares` each record's weight.

    The shares of a unit's records are equal and add up to 1, so that a unit of many
    records adds no more than a unit of one record. They are exactly 1 if units are
    records, and 0 for a record that is left out.
    """

    rows: tuple[Indices, ...]
    shares: NDArray[np.float64]

    @property
    def count(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, records: Records, unit: str, cap: int) -> Self:
        """Group records into units. A person's first `cap` records in file order are
        used, whatever others have.
        """
        if unit not in UNITS:
            raise unknown_name("unit", unit, UNITS)
        if unit == "record":
            return cls(
                tuple(np.arange(len(records)).reshape(-1, 1)), np.ones(len(records))
            )
        persons, shares = records.persons, np.zeros(len(records))
        order = np.argsort(persons, kind="stable")
        groups = (
            np.split(order, np.flatnonzero(np.diff(persons[order])) + 1)
            if len(order)
            else []
        )
        kept = tuple(group[:cap] for group in groups)
        for rows in kept:
            shares[rows] = 1.0 / len(rows)
        return cls(kept, shares)

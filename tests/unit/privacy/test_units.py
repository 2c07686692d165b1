"""Whom the promise protects: shares add up to one record's worth, and no person moves a
summary further than that.
"""

import numpy as np
import pytest

from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import UnknownNameError
from fedaux.data.records import Records
from fedaux.privacy.units import Units, public_size

PERSONS = np.array([4, 4, 2, 4, 9, 2, 4])


def test_a_record_is_a_unit() -> None:
    units = Units.of(Records(np.zeros((3, 2)), np.zeros(3, np.int64)), "record", 1)
    assert units.count == 3
    assert [rows.tolist() for rows in units.rows] == [[0], [1], [2]]
    assert units.shares.tolist() == [1.0, 1.0, 1.0]


def test_a_person_is_a_unit_of_their_first_records() -> None:
    records = Records(np.zeros((7, 2)), person=PERSONS)
    units = Units.of(records, "person", 3)
    assert units.count == 3
    assert [rows.tolist() for rows in units.rows] == [[2, 5], [0, 1, 3], [4]]
    assert units.shares.tolist() == [1 / 3, 1 / 3, 0.5, 1 / 3, 1.0, 0.5, 0.0]
    # positions are those of the view
    view = Units.of(records.take(np.array([6, 4, 0])), "person", 1)
    assert [rows.tolist() for rows in view.rows] == [[0], [1]]
    assert view.shares.tolist() == [1.0, 1.0, 0.0]


def test_no_records_are_no_units_and_unknown_words_are_refused() -> None:
    empty = Records(np.zeros((0, 2)), person=np.zeros(0, np.int64))
    assert Units.of(empty, "person", 2).count == Units.of(empty, "record", 2).count == 0
    with pytest.raises(UnknownNameError, match="the unit 'family': it is unknown"):
        Units.of(empty, "family", 2)
    with pytest.raises(ValueError, match=r"Set data\.person"):
        Units.of(Records(np.zeros((2, 2))), "person", 2)


def test_the_size_that_replies_state_is_the_same_for_neighbours() -> None:
    """Counted under replace-one, records or persons; declared where a record may be
    added or removed.
    """
    records, fewer = (
        Records(np.zeros((7, 2)), person=PERSONS),
        Records(np.zeros((6, 2)), person=PERSONS[:6]),
    )
    assert public_size(records, PrivacyConfig()) == 7
    assert public_size(records, PrivacyConfig(unit="person")) == 3
    declared = PrivacyConfig(adjacency="add-remove", declared_records=64)
    assert public_size(records, declared) == public_size(fewer, declared) == 64

"""Fingerprints know what went in."""

from __future__ import annotations

import numpy as np

from fedaux.data.fingerprints import fingerprint_array, fingerprint_records
from fedaux.data.records import Records


def test_a_fingerprint_knows_rows_order_and_facts() -> None:
    x = np.arange(40, dtype=np.uint8).reshape(10, 4)
    one = fingerprint_records(Records(x), "a", 1)
    assert one == fingerprint_records(
        Records(np.vstack([x, x])).take(np.arange(10)), "a", 1
    )
    changed = x.copy()
    changed[3, 3] += 1
    others = {
        fingerprint_records(Records(x[::-1]), "a", 1),
        fingerprint_records(Records(changed), "a", 1),
        fingerprint_records(Records(x), "a", 2),
    }
    assert len(others | {one}) == 4


def test_a_fingerprint_of_text_knows_where_a_text_ends() -> None:
    texts = (["ab", "c"], ["a", "bc"], ["ab", "c", ""], ["c", "ab"])
    found = {
        fingerprint_records(Records(np.array(text, dtype=object))) for text in texts
    }
    assert len(found) == 4


def test_a_fingerprint_of_a_whole_array_knows_its_type_and_shape() -> None:
    """Two arrays of the same bytes have other rows, and other features."""
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    assert (
        len(
            {
                fingerprint_array(array)
                for array in (x, x.reshape(12, 2), x.view(np.int32), x.copy())
            }
        )
        == 3
    )

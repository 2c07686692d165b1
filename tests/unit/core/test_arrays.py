"""A fingerprint of named arrays knows every bit of them."""

from __future__ import annotations

import numpy as np

from fedaux.core.arrays import fingerprint_arrays


def test_a_fingerprint_of_arrays_knows_names_types_shapes_and_rooms() -> None:
    x = np.zeros((2, 3), np.float32)
    rooms = [
        ({"a": x},),
        ({"b": x},),
        ({"a": x.T},),
        ({"a": x.view(np.int32)},),
        ({"a": x}, {}),
        ({}, {"a": x}),
    ]
    assert len({fingerprint_arrays(*room) for room in rooms}) == 6
    assert fingerprint_arrays({"a": x}, facts=1) != fingerprint_arrays({"a": x})

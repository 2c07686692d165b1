"""Labels and persons of an array on disk, value by value.

An array has one type, and a single value decides on it: NumPy writes [1, 2, nan] as floats, [1, 2, "?"] as texts and
[1, 2, None] as objects. Whatever it is, each value is read as if it were alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from fedaux.data.pickles import unpickle_objects


def load_values(file: Path) -> list[Any]:
    """The values as Python's own; objects other than numbers and texts are not made (`pickles.Unknown`)."""
    with file.open("rb") as stream:
        version = npy_format.read_magic(stream)
        read_header = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        if read_header(stream)[2].hasobject:
            return list(np.asarray(unpickle_objects(stream), dtype=object).reshape(-1))
    array = np.load(file).reshape(-1)
    return decoded(array) if array.dtype.kind in "SU" else list(array.tolist())


def decoded(array: NDArray[Any]) -> list[str]:
    """Texts of an array, in which bytes and numbers that are no characters are replaced one by one."""
    encoding = {"S": "utf-8", "U": "utf-32-be" if array.dtype.str[0] == ">" else "utf-32-le"}[array.dtype.kind]
    width, data = array.dtype.itemsize, array.tobytes()
    rows = (data[place * width : (place + 1) * width] for place in range(len(array)))
    return [row.decode(encoding, "replace").rstrip("\0") for row in rows]

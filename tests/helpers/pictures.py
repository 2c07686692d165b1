"""Random pictures, and files as the publishers of image sets write them."""

from __future__ import annotations

import io
import pickle
import struct

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)


class Python2Pickler(pickle._Pickler):
    """Bytes become Python 2 strings, and NumPy's modules have their old names: what the
    published pickles contain.
    """

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, value):
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


def dump_python2(content, file):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(content)
    file.write_bytes(
        stream.getvalue().replace(
            b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"
        )
    )


def pictures(count, side=32):
    return RNG.integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def planes(x):
    """(N, H, W, 3) → rows of red, green, blue planes."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def check(records, x, y):
    assert isinstance(records.x, np.memmap)
    assert records.x.dtype == np.uint8
    assert np.array_equal(records.gather(), x)
    assert (records.y is None) == (y is None)
    if y is not None:
        assert np.array_equal(records.labels, y)


def save_png(file, x):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(x).save(file)

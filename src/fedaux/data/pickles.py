"""Pickles without the code that they may carry: arrays, numbers and strings only."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import IO, Any

ARRAY_GLOBALS = {  # everything a dictionary of arrays, numbers and strings needs, pickled by any NumPy
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}
SCALAR = ("numpy._core.multiarray", "scalar")  # a number of NumPy's, in an array of objects


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays only: an unrestricted pickle could execute any code."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) not in ARRAY_GLOBALS:
            raise pickle.UnpicklingError(f"refused {module}.{name}: this is not the published file; download it again")
        return super().find_class(module, name)


def load_pickle(file: Path) -> dict[str, Any]:
    """A dictionary of arrays and lists, pickled by Python 2 or 3."""
    with file.open("rb") as stream:
        content = _ArrayUnpickler(stream, encoding="latin1").load()
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}


class Unknown:
    """In place of an object of any other class, which is not made: it says nothing, and so is nobody's name."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def _ignore(self, *_: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = _ignore

    def __str__(self) -> str:
        return ""


class _ObjectUnpickler(pickle.Unpickler):
    """One strange object in an array leaves the others as they are."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        return super().find_class(module, name) if (module, name) in {*ARRAY_GLOBALS, SCALAR} else Unknown


def unpickle_objects(stream: IO[bytes]) -> Any:
    """An array of Python objects; those that are neither numbers nor texts are `Unknown`."""
    return _ObjectUnpickler(stream).load()

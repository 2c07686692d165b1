"""A file that remembers what the clients of an app are asked with: their accounts know the question by its bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import numpy as safetensors

from fedaux.core.errors import FedauxError
from fedaux.core.io import write_atomically
from fedaux.core.messages import Arrays

PARTS = ("h0", "map")  # the extractor, and what the scorer published


class KeptError(FedauxError, ValueError):
    """A file that was kept from another app."""


def save_question(path: Path, h0: Arrays, public: Arrays) -> None:
    parts = zip(PARTS, (h0, public), strict=True)
    flat = {f"{part}.{name}": array for part, arrays in parts for name, array in arrays.items()}
    write_atomically(path, safetensors.save({key: np.ascontiguousarray(array) for key, array in flat.items()}))


def load_question(path: Path) -> tuple[Arrays, Arrays]:
    """(h0, what the scorer published), to the bit as they were saved."""
    parts: dict[str, Arrays] = {part: {} for part in PARTS}
    for key, array in safetensors.load_file(path).items():
        part, _, name = key.partition(".")
        parts[part][name] = array
    return parts["h0"], parts["map"]

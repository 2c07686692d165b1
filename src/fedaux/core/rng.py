"""Named random streams: every generator of a run is seeded from `(seed, name, ...)`.

A stream is recreated from its name where it is needed, so a resumed run draws the same
numbers as an uninterrupted one. Names in use: `split`, `aux`, `init`, `pretrain`,
`sampling`, `batches`, `distill`, `distill-part`, `bayes`. Privacy noise comes from the
operating system instead (`privacy.mechanism`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *names: str | int) -> int:
    """Derive a 63-bit seed from the run's seed and every part of the name."""
    stream = "\x1f".join([str(seed), *map(str, names)])
    digest = hashlib.sha256(stream.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def numpy_stream(seed: int, *names: str | int) -> np.random.Generator:
    return np.random.default_rng(derive_seed(seed, *names))


def torch_stream(seed: int, *names: str | int) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, *names))


@contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Seed PyTorch's global generator within the block and restore its state
    afterwards.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed every GPU as well
        torch.default_generator.manual_seed(seed)
        yield

"""How far an update may move: limits from the median update of earlier rounds, the same for every client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fedaux.core.messages import Arrays
from fedaux.core.results import RoundResult

UpdateNorm = dict[str, float]  # of each array of a model, see `update_norm`
NORM_LIMIT = 100.0  # times the median update norm of any earlier round; an honest client was seen at 13


def update_norm(sent: Arrays, received: Arrays, steps: int) -> UpdateNorm:
    """‖θ_i − θ_sent‖/√steps, of parameters and of running statistics; counters have no say.

    Training drifts about as the root of its steps, so clients with few and with many records can be compared.
    """
    floats = [name for name, array in sent.items() if np.issubdtype(array.dtype, np.floating)]
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is seen by its norm
        return {name: float(np.linalg.norm(received[name] - sent[name])) / math.sqrt(steps) for name in floats}


def medians(norms: Sequence[UpdateNorm]) -> UpdateNorm:
    """Of each array, over the clients of a round."""
    return {name: float(np.median([norm[name] for norm in norms])) for name in norms[0]}


def norm_limits(history: Iterable[RoundResult]) -> dict[str, UpdateNorm]:
    """By prototype: a robust bound, as half of the clients would have to lie to move a median at will."""
    limits: dict[str, UpdateNorm] = {}
    for result in history:
        for label, median in result.update_norms.items():
            known = limits.setdefault(label, {})
            for name, size in median.items():
                if size > 0:
                    known[name] = max(known.get(name, 0.0), NORM_LIMIT * size)
    return limits

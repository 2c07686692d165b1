"""How far an update may move a model: at most a multiple of what the median client
moved it in an earlier round, the same for every client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fedaux.core.arrays import Arrays
from fedaux.core.results import RoundResult

UpdateNorm = dict[str, float]  # of each array of a model, see `update_norm`
# times the median update norm of any earlier round; an honest client was seen at 13
NORM_LIMIT = 100.0


def update_norm(sent: Arrays, received: Arrays, steps: int) -> UpdateNorm:
    """Return ‖θ_i − θ_sent‖/√steps of parameters and running statistics; counters are
    ignored.

    Training moves weights roughly by the root of its steps, so clients with few and
    many records are comparable.
    """
    norms: UpdateNorm = {}
    for name, start in sent.items():
        if not np.issubdtype(start.dtype, np.floating):
            continue
        # values that are not finite show in the norm
        with np.errstate(over="ignore", invalid="ignore"):
            distance = float(np.linalg.norm(received[name] - start))
        norms[name] = distance / math.sqrt(steps)
    return norms


def check_norm(norm: UpdateNorm, limits: UpdateNorm) -> None:
    """Raise a ValueError if an update is not finite, or moves an array too far."""
    for name, size in norm.items():
        if not math.isfinite(size):
            raise ValueError(f"its {name} are not finite")
        limit = limits.get(name, math.inf)
        if size > limit:
            raise ValueError(
                f"its {name} move by {size:.3g}, but earlier rounds make {limit:.3g} "
                "the limit"
            )


def medians(norms: Sequence[UpdateNorm]) -> UpdateNorm:
    """Return the median norm of each array over the clients of a round."""
    return {name: float(np.median([norm[name] for norm in norms])) for name in norms[0]}


def norm_limits(history: Iterable[RoundResult]) -> dict[str, UpdateNorm]:
    """Return robust bounds by prototype: half of the clients would have to lie to move
    a median at will.
    """
    limits: dict[str, UpdateNorm] = {}
    for result in history:
        for label, median in result.update_norms.items():
            largest = limits.setdefault(label, {})
            for name, size in median.items():
                if size > 0:
                    largest[name] = max(largest.get(name, 0.0), NORM_LIMIT * size)
    return limits

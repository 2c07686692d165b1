"""Classes of which releases say nothing: their noisy counts of records are what noise
alone would explain.

It is post-processing of releases, and costs no further privacy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedaux.scoring.embedding import ClassValues

DEVIATIONS = 3.0  # of its noise that a count must reach


def unknown_classes(released: Sequence[ClassValues]) -> list[tuple[int, float, float]]:
    """Return (class, noisy count of its records, standard deviation of that count) of
    each class that is not known.

    A class is known if its count over all releases is at least `DEVIATIONS` deviations
    of their noise, or if that of one release is: of n releases the largest noise is
    larger, so the limit for a single one is that which the largest of n exceeds as
    rarely.
    """
    from scipy.stats import norm

    counts = np.stack([values.counts for values in released])  # (n, C)
    noise = np.array([max(values.count_noise, 1e-9) for values in released])
    total = counts.sum(axis=0)
    deviation = float(np.sqrt(np.square(noise).sum()))
    single = float(norm.isf(norm.sf(DEVIATIONS) / len(released)))
    largest = (counts / noise[:, None]).max(axis=0)
    stands_out = (total >= DEVIATIONS * deviation) | (largest >= single)
    # where there is hardly any noise, a class without records is still unknown
    stands_out &= total >= 0.5
    unknown = np.flatnonzero(~stands_out)
    return [(int(label), float(total[label]), deviation) for label in unknown]

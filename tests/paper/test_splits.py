"""The 1,600 splits of docs/results.md: with any number of clients and any α, both
margins are exact.
"""

import numpy as np
import pytest

from fedaux.data.partition import class_counts, dirichlet

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))


@pytest.mark.parametrize("alpha", [0.01, 0.16, 1, 100])
@pytest.mark.parametrize("clients", [10, 20, 80, 100])
def test_both_margins_are_exact_for_100_seeds(clients: int, alpha: float) -> None:
    for seed in range(100):
        parts = dirichlet(LABELS, clients, alpha, np.random.default_rng(seed))
        counts = class_counts(LABELS, parts, 10)
        assert (counts.sum(1) == 50_000 // clients).all()
        assert (counts.sum(0) == 5000).all()
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(50_000))

"""Vectors on which a product's sign depends on the number of rows."""

import numpy as np
import pytest

from attacks.package.records import TRIES, cancelling_pairs, find_shape_dependent
from fedaux.audit.result import AttackSkipped


@pytest.mark.parametrize("width", [2, 64, 512])
def test_pairs_cancel_but_for_rounding(width: int) -> None:
    for number, (h, weights) in enumerate(cancelling_pairs(width)):
        assert h.dtype == weights.dtype == np.float32
        assert (h > 0).all()
        # products of float32 are exact here
        exact = sum(float(a) * float(b) for a, b in zip(h, weights, strict=True))
        assert abs(exact) < 1e-9 * width
        if number == 10:
            break


def test_a_kernel_that_depends_on_the_shape_is_found() -> None:
    def product(h: np.ndarray, weights: np.ndarray, rows: int) -> np.ndarray:
        """Sums from the left for an even number of rows, from the right for an
        odd one.
        """
        terms = (h * weights)[:: 1 if rows % 2 == 0 else -1]
        return np.full(rows, np.add.accumulate(terms, dtype=np.float32)[-1])

    h, weights, small, large = find_shape_dependent(product, 64, 8)
    assert small * large < 0
    assert product(h, weights, 8)[0] == np.float32(small)
    assert product(h, weights, 9)[0] == np.float32(large)


def test_a_kernel_that_does_not_is_not_blamed() -> None:
    calls = []

    def product(h: np.ndarray, weights: np.ndarray, rows: int) -> np.ndarray:
        calls.append(rows)
        return np.full(rows, float(h.astype(np.float64) @ weights))

    with pytest.raises(AttackSkipped, match="kernels of this machine agree"):
        find_shape_dependent(product, 16, 4)
    assert calls == [4, 5] * TRIES

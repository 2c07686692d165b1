"""The audit on a client's own sampler: the claim is nearly reached, never passed, and
half the noise is reported.
"""

import numpy as np
import pytest

from attacks.package.bounds import linear_scores, lower_bounds
from fedaux.privacy.mechanism import add_noise, multiplier

REACH = 2.0**21


def draws(
    epsilon: float, count: int, calibration: str, factor: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Releases of two neighbours at their claimed distance, with the sampler and the
    scale of a client.
    """
    scale = factor * multiplier(epsilon, 1e-5, calibration, 2, REACH) * REACH
    low, high = (
        np.concatenate(
            [
                add_noise(np.full(2 * count // 20, round(side), np.int64), scale)
                for _ in range(20)
            ]
        )
        for side in (-REACH / 8**0.5, REACH / 8**0.5)
    )
    return linear_scores(
        low.reshape(-1, 2).astype(float), high.reshape(-1, 2).astype(float)
    )


@pytest.mark.parametrize(
    ("epsilon", "calibration", "count"),
    [
        (4.0, "analytic", 40_000),
        pytest.param(4.0, "opendp", 40_000, marks=pytest.mark.slow),
        pytest.param(1.0, "opendp", 200_000, marks=pytest.mark.slow),
    ],
)
def test_what_is_claimed_is_nearly_reached_and_never_passed(
    epsilon: float, calibration: str, count: int
) -> None:
    """The noise is just enough: at a confidence of 95 %, the bound passes ε by chance
    once in 350 tests.
    """
    any_mechanism, gaussian = lower_bounds(
        *draws(epsilon, count, calibration), 1e-5, confidence=0.999
    )
    assert any_mechanism <= epsilon
    assert 0.6 * epsilon <= gaussian <= epsilon


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_noise_of_half_its_scale_is_reported(epsilon: float) -> None:
    assert (
        max(lower_bounds(*draws(epsilon, 20_000, "analytic", factor=0.5), 1e-5))
        > epsilon
    )

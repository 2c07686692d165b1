"""A head trained on synthetic features: what classes of equal and of unequal covariance
should give.
"""

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.methods.analytic_heads import Discriminant, FeatureMoments, Head
from fedaux.methods.gaussian_head import GaussianHead, class_factors

RNG = np.random.default_rng(0)
WIDTH, COUNTS = 4, (600, 300, 0)
MEANS = np.array([[1.0, 0, 0, 0], [-1.0, 0.5, 0, 0]])


def sums(scales: tuple[float, float]) -> tuple[FeatureMoments, np.ndarray, np.ndarray]:
    """Moments of two classes with these deviations, and a third one without records."""
    y = np.repeat([0, 1], COUNTS[:2])
    x = MEANS[y] + np.array(scales)[y][:, None] * RNG.standard_normal((len(y), WIDTH))
    one_hot = np.eye(3)[y]
    each = np.stack([x[y == label].T @ x[y == label] for label in range(3)])
    return (
        FeatureMoments(one_hot.T @ x, one_hot.sum(axis=0), each.sum(axis=0), each),
        x,
        y,
    )


def logits(head: Head, x: np.ndarray) -> np.ndarray:
    return x @ head.weight.T + head.bias


def test_with_one_covariance_it_approaches_the_discriminant() -> None:
    moments, x, y = sums((1.0, 1.0))
    found = logits(
        GaussianHead(samples=4000, shared=1.0, epochs=30, lr=1e-2).head(
            moments, lambda: np.eye(WIDTH)
        ),
        x,
    )
    exact = logits(Discriminant().head(moments, lambda: np.eye(WIDTH)), x)
    log_odds = [each[:, 0] - each[:, 1] for each in (found, exact)]
    assert np.corrcoef(*log_odds)[0, 1] > 0.99
    # the prior is in it
    assert np.polyfit(log_odds[1], log_odds[0], 1) == pytest.approx([1, 0], abs=0.2)
    assert (found.argmax(axis=1) == y).mean() == pytest.approx(
        (exact.argmax(axis=1) == y).mean(), abs=0.02
    )
    assert (found.argmax(axis=1) < 2).all()  # a class without records is not named


def test_each_class_has_its_own_covariance_as_far_as_it_is_not_shared() -> None:
    moments, x, y = sums((0.5, 3.0))
    factors = class_factors(moments, 0.0)
    for label in (0, 1):
        covariance = factors[label] @ factors[label].T
        assert np.allclose(
            covariance,
            np.cov(x[y == label], rowvar=False),
            atol=0.15 * (0.5, 3.0)[label] ** 2,
        )
    shared = class_factors(moments, 1.0)
    assert np.allclose(shared[0], shared[1])
    # without records there is nothing but the common one
    assert np.allclose(factors[2], shared[2])


def test_moments_that_no_records_have_give_a_head_all_the_same() -> None:
    moments, _, _ = sums((1.0, 1.0))
    assert moments.class_moments is not None
    moments.class_moments[0] = -np.eye(WIDTH)  # a client may send anything
    assert np.isfinite(
        GaussianHead(samples=20, epochs=1).head(moments, lambda: np.eye(WIDTH)).weight
    ).all()


def test_the_same_sums_give_the_same_head() -> None:
    moments, _, _ = sums((1.0, 2.0))
    one, other = (
        GaussianHead(samples=50, epochs=2).head(moments, lambda: np.eye(WIDTH))
        for _ in range(2)
    )
    assert one.weight.tobytes() == other.weight.tobytes()
    assert not np.allclose(one.weight, 0)


@pytest.mark.parametrize(
    "options", [{"samples": 0}, {"epochs": 0}, {"shared": 1.5}, {"lr": 0.0}]
)
def test_options_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        GaussianHead(**options)  # type: ignore[arg-type]

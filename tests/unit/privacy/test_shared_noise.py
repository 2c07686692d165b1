"""Noise that sites share: a sum of discrete Gaussians against one, by direct
convolution (docs/proofs.md).
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from fedaux.config.sections import PrivacyConfig
from fedaux.privacy.mechanism import LEAST_SHARE, Summary, noise_scale, release
from fedaux.privacy.secure_sum import (
    SecureSumError,
    agreed_threshold,
    honest_sites,
    least_threshold,
)

Law = NDArray[np.float64]


def discrete_gaussian(scale: float, reach: int) -> Law:
    points = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * np.square(points / scale))
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("scale", [0.6, 0.8, 1.0, 1.2])
@pytest.mark.parametrize("shares", [2, 3, 5])
def test_a_sum_of_shares_is_one_discrete_gaussian_but_for_a_factor(
    scale: float, shares: int
) -> None:
    """Lemma 5: |log ratio| ≤ 10 (h − 1) e^(−π² s²) at every point; and the bound is not
    idle.
    """
    reach = 60
    law = share = discrete_gaussian(scale, reach)
    for _ in range(shares - 1):
        law = np.convolve(law, share)
    whole = discrete_gaussian(scale * math.sqrt(shares), len(law) // 2)
    inner = slice(len(law) // 2 - 8, len(law) // 2 + 9)
    ratio = np.abs(np.log(law[inner] / whole[inner])).max()
    bound = 10 * (shares - 1) * math.exp(-((math.pi * scale) ** 2))
    assert ratio <= bound
    assert shares > 2 or ratio > 0.01 * bound


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("shares", [2, 7])
def test_the_shares_of_honest_sites_keep_the_promise(
    epsilon: float, shares: int
) -> None:
    """The hockey-stick divergence of the convolved noise, at the sensitivity: δ, and
    hardly less.
    """
    sensitivity, delta = 4000, 1e-5
    privacy = PrivacyConfig(epsilon=epsilon, delta=delta)
    scale = noise_scale(1, float(sensitivity), privacy, shares)
    share = discrete_gaussian(scale, int(12 * scale))
    law = share
    for _ in range(shares - 1):
        law = np.maximum(fftconvolve(law, share), 0.0)
    found = float(
        np.maximum(law[sensitivity:] - math.exp(epsilon) * law[:-sensitivity], 0).sum()
    )
    one_less = share  # of one site less than promised
    for _ in range(shares - 2):
        one_less = np.maximum(fftconvolve(one_less, share), 0.0)
    broken = float(
        np.maximum(
            one_less[sensitivity:] - math.exp(epsilon) * one_less[:-sensitivity], 0
        ).sum()
    )
    assert 0.95 * delta < found <= delta < broken


def test_a_share_is_the_noise_over_the_root_of_honest_sites() -> None:
    privacy = PrivacyConfig(epsilon=1.0, unsafe_seed=1)
    summary = Summary(np.zeros(4000, np.int64), 2.0**-30, 2.0**31, "replace-one", 10)
    whole, share = (release(summary, "a", privacy, honest) for honest in (1, 9))
    assert share.scale == pytest.approx(whole.scale / 3)
    assert share.arrays["values"].std() == pytest.approx(share.scale, rel=0.05)


def test_shares_that_are_too_coarse_are_refused() -> None:
    with pytest.raises(ValueError, match="too coarse"):
        noise_scale(1, LEAST_SHARE / 100, PrivacyConfig(epsilon=1.0), 9)


@pytest.mark.parametrize(
    ("sites", "share", "threshold"),
    [(3, 0.8, 3), (5, 0.7, 5), (6, 0.7, 5), (20, 0.8, 16)],
)
def test_the_threshold(sites: int, share: float, threshold: int) -> None:
    assert agreed_threshold(sites, share) == threshold >= least_threshold(sites)


@pytest.mark.parametrize(
    ("threshold", "sites", "colluders", "honest"),
    [(16, 20, 1, 15), (16, 20, 5, 11), (3, 3, 1, 2)],
)
def test_how_many_sites_are_honest(
    threshold: int, sites: int, colluders: int, honest: int
) -> None:
    assert honest_sites(threshold, sites, colluders) == honest


@pytest.mark.parametrize(("threshold", "sites", "colluders"), [(14, 20, 8), (3, 3, 2)])
def test_too_many_colluders(threshold: int, sites: int, colluders: int) -> None:
    with pytest.raises(SecureSumError, match="protects no one"):
        honest_sites(threshold, sites, colluders)

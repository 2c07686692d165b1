"""Density ratios from a noisy mean, against brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from fedaux.privacy.clipping import clip_rows
from fedaux.scoring.base import LogOdds, Moments, Reference
from fedaux.scoring.density_ratio import RATIOS, kliep, noise_ridge


def ratio(name: str, mean: np.ndarray, rows: np.ndarray, sigma: float, records: int) -> LogOdds:
    fit, log_odds = RATIOS[name]
    reference = Reference(rows)
    return log_odds(fit(mean, reference, sigma, records), Moments(reference.mean, reference.covariance))


def test_bayes_is_the_predictive_density_by_brute_force() -> None:
    """One dimension: average the density of a row over a fine grid of the client's possible means."""
    rng = np.random.default_rng(0)
    reference = rng.normal(0.1, 0.3, size=(500, 1))
    mu, half = reference.mean(), reference.var(ddof=1) / 2
    sigma, records, mean, x = 0.2, 40, 0.5, np.array([-0.4, 0.0, 0.3, 0.9])
    grid = np.linspace(-6, 6, 200_001)
    noise = np.sqrt(sigma**2 + half / records)
    posterior = norm.pdf(grid, mu, np.sqrt(half)) * norm.pdf(mean, grid, noise)
    posterior /= posterior.sum()
    naive = [np.log((posterior * norm.pdf(value, grid, np.sqrt(half))).sum()) for value in x]
    naive = naive - norm.logpdf(x, mu, np.sqrt(2 * half)) + np.log(records / 500)
    assert np.allclose(ratio("bayes", np.array([mean]), reference, sigma, records)(x[:, None]), naive, atol=1e-6)


def test_kliep_maximises_its_objective() -> None:
    rng = np.random.default_rng(3)
    reference, mean, ridge = clip_rows(rng.normal(size=(300, 4)) * 0.4), np.array([0.2, -0.1, 0.05, 0.0]), 0.05

    def naive(w: np.ndarray) -> float:
        average = sum(np.exp(sum(a * b for a, b in zip(w, row, strict=True))) for row in reference) / len(reference)
        return -float(w @ mean - np.log(average) - ridge / 2 * w @ w)

    best = minimize(naive, np.zeros(4), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20000})
    weights, log_z = kliep(mean, Reference(reference), ridge)
    assert np.allclose(weights, best.x, atol=1e-4)
    assert np.mean(np.exp(reference @ weights - log_z)) == pytest.approx(1.0)


def test_kliep_recovers_a_known_ratio() -> None:
    """For N(m, I) against N(0, I) the log-ratio is ⟨m, x⟩ − ‖m‖²/2."""
    rng = np.random.default_rng(4)
    reference, shift = rng.normal(size=(40_000, 2)), np.array([0.5, -0.3])
    weights, log_z = kliep((rng.normal(size=(40_000, 2)) + shift).mean(axis=0), Reference(reference), 1e-6)
    assert np.allclose(weights, shift, atol=0.03)
    assert log_z == pytest.approx(shift @ shift / 2, abs=0.03)


def fit(sigma: float, records: int = 100) -> np.ndarray:
    rng = np.random.default_rng(5)
    reference = Reference(clip_rows(rng.normal(size=(500, 8)) * 0.3))
    mean = np.full(8, 0.15) + sigma * rng.normal(size=8)
    return kliep(mean, reference, noise_ridge(mean, reference, sigma, records))[0]


def test_ridge_grows_until_the_signal_is_gone() -> None:
    clear, drowned = fit(0.01), [fit(sigma) for sigma in (0.5, 2.0)]
    assert np.linalg.norm(clear) > 2.0
    assert all(np.linalg.norm(w) < 1.5 for w in drowned)


@pytest.mark.parametrize("name", RATIOS)
def test_noise_that_drowns_the_signal_gives_equal_weights(name: str) -> None:
    """Two clients at opposite ends: told apart where the noise is small, alike on every row where it is huge."""
    rng = np.random.default_rng(7)
    reference, shift = clip_rows(rng.normal(size=(800, 6)) * 0.3), np.full(6, 0.15)
    gaps = []
    for sigma in (0.01, 20.0):
        means = [side * shift + sigma * rng.normal(size=6) for side in (1, -1)]
        one, other = (ratio(name, mean, reference, sigma, 200)(reference) for mean in means)
        gaps.append(float(np.abs(one - other).mean()))
    assert gaps[0] > 0.8
    assert gaps[1] < 0.15

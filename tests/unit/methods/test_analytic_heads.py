"""Heads from sums against what central data gives, computed the long way."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from fedaux.client.sums import sum_features
from fedaux.config.methods import allowed_sums
from fedaux.config.parsing import ConfigError
from fedaux.data.records import Records
from fedaux.messages.replies import sums_shapes
from fedaux.methods.analytic_heads import (
    PENALTIES,
    SUM_BITS,
    ClassMeans,
    Discriminant,
    FeatureMoments,
    FeatureSums,
    Head,
    Ridge,
    discriminant_head,
    nearest_mean_head,
    ridge_head,
    shrunk,
    within_covariance,
)
from fedaux.models import HeadFeatures
from fedaux.models.registry import standardisation

N, WIDTH, CLASSES = 300, 6, 3
RNG = np.random.default_rng(0)
LABELS = RNG.choice(CLASSES, size=N, p=[0.5, 0.3, 0.2])
X = RNG.normal(size=(CLASSES, WIDTH))[LABELS] + RNG.normal(
    size=(N, WIDTH)
) @ RNG.normal(size=(WIDTH, WIDTH))
ONE_HOT = np.eye(CLASSES)[LABELS]


def sums(
    x: np.ndarray = X, y: np.ndarray = LABELS, classes: int = CLASSES
) -> FeatureMoments:
    one_hot = np.eye(classes)[y]
    return FeatureMoments(one_hot.T @ x, one_hot.sum(axis=0), x.T @ x)


def central_ridge(penalty: float) -> np.ndarray:
    """(D + 1, C): least squares on rows with a constant, which is not penalised, by
    augmented rows.
    """
    rows = np.column_stack([X, np.ones(N)])
    pull = np.sqrt(penalty * N) * np.eye(WIDTH, WIDTH + 1)
    return np.linalg.lstsq(
        np.vstack([rows, pull]),
        np.vstack([ONE_HOT, np.zeros((WIDTH, CLASSES))]),
        rcond=None,
    )[0]


def predictions(head: Head) -> np.ndarray:
    return X @ head.weight.T + head.bias


@pytest.mark.parametrize("penalty", [1e-4, 0.1, 10.0])
def test_ridge_is_central_least_squares(penalty: float) -> None:
    found, naive = (
        predictions(ridge_head(sums(), penalty)),
        np.column_stack([X, np.ones(N)]) @ central_ridge(penalty),
    )
    # the variance of the error, which makes logits of it
    scale = found.std() / naive.std()
    assert np.allclose(found, scale * naive, atol=1e-6 * scale)
    assert np.allclose(
        predictions(Ridge(penalty).head(sums(), lambda: np.eye(WIDTH))), found
    )
    error = np.square(ONE_HOT - naive).sum() / N / CLASSES
    # n, where the head divides by n − df
    assert 1 / scale == pytest.approx(error, rel=0.05)


def test_without_a_penalty_it_is_the_one_of_the_least_cross_validation_error() -> None:
    """GCV the long way: from the hat matrix of the centred rows."""
    centred, targets = X - X.mean(axis=0), ONE_HOT - ONE_HOT.mean(axis=0)
    scale = np.linalg.eigvalsh(centred.T @ centred).mean()

    def gcv(penalty: float) -> float:
        hat = centred @ np.linalg.solve(
            centred.T @ centred + penalty * scale * np.eye(WIDTH), centred.T
        )
        return np.square(targets - hat @ targets).sum() / (N - 1 - np.trace(hat)) ** 2

    best = min(PENALTIES, key=gcv)
    assert PENALTIES[0] < best < PENALTIES[-1]
    expected = ridge_head(sums(), best * scale / N)
    assert np.allclose(ridge_head(sums()).weight, expected.weight)
    assert np.allclose(ridge_head(sums()).bias, expected.bias)


def test_the_penalty_grows_where_features_say_nothing() -> None:
    noise = np.random.default_rng(1).normal(size=X.shape)
    assert np.linalg.norm(ridge_head(sums(noise)).weight) < 0.1 * np.linalg.norm(
        ridge_head(sums()).weight
    )


def test_a_discriminant_head_is_the_posterior_of_its_gaussians() -> None:
    covariance = within_covariance(sums())
    logits = predictions(discriminant_head(sums(), covariance))
    densities = np.column_stack(
        [
            ((c == LABELS).sum() + 1)
            / (N + CLASSES)
            * multivariate_normal(X[c == LABELS].mean(axis=0), covariance).pdf(X)
            for c in range(CLASSES)
        ]
    )
    posterior = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(posterior, densities / densities.sum(axis=1, keepdims=True))
    assert np.allclose(
        Discriminant().head(sums(), lambda: np.eye(WIDTH)).weight,
        discriminant_head(sums(), covariance)[0],
    )


def test_the_covariance_is_that_within_classes() -> None:
    centred = np.concatenate(
        [X[c == LABELS] - X[c == LABELS].mean(axis=0) for c in range(CLASSES)]
    )
    assert np.allclose(within_covariance(sums()), shrunk(centred.T @ centred / N, N))


def test_the_nearest_class_mean() -> None:
    means = np.stack([X[c == LABELS].mean(axis=0) for c in range(CLASSES)])
    nearest = np.linalg.norm(X[:, None] - means, axis=2).argmin(axis=1)
    assert np.array_equal(
        predictions(nearest_mean_head(sums())).argmax(axis=1), nearest
    )
    for kind, other in (
        ("identity", nearest_mean_head(sums())),
        ("public", discriminant_head(sums(), 2 * np.eye(WIDTH))),
    ):
        found = ClassMeans(kind).head(sums(), lambda: 2 * np.eye(WIDTH))
        assert np.allclose(found.weight, other.weight)


def test_few_rows_shrink_a_covariance_and_many_do_not() -> None:
    covariance = np.cov(X, rowvar=False)
    few, many = shrunk(covariance, 3), shrunk(covariance, 1e9)
    assert np.linalg.cond(few) < 0.5 * np.linalg.cond(covariance)
    assert np.allclose(many, covariance, rtol=1e-4, atol=1e-4)
    assert np.trace(few) == pytest.approx(np.trace(covariance))


@pytest.mark.parametrize(
    "method", [Ridge(), Discriminant(), ClassMeans(), ClassMeans("identity")]
)
@pytest.mark.parametrize("count", [1, 3, N])
def test_few_records_and_a_class_that_nobody_has_give_a_finite_head(
    method: Ridge, count: int
) -> None:
    head = method.head(
        sums(X[:count], LABELS[:count], CLASSES + 1), lambda: np.cov(X, rowvar=False)
    )
    assert head.weight.shape == (CLASSES + 1, WIDTH)
    assert np.isfinite(head.weight).all()
    assert np.isfinite(head.bias).all()


def test_no_class_that_nobody_has_is_predicted() -> None:
    for method in (Ridge(), Discriminant(), ClassMeans()):
        head = method.head(sums(classes=CLASSES + 1), lambda: np.cov(X, rowvar=False))
        assert (predictions(head).argmax(axis=1) < CLASSES).mean() > 0.95


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="penalty"):
        Ridge(-1.0)
    with pytest.raises(ConfigError, match="covariance"):
        ClassMeans("private")


RECORDS = Records(
    (RNG.normal(size=(3000, WIDTH)) * 3 + 1).astype(np.float32),
    RNG.integers(CLASSES, size=3000),
)  # nobody has the last class


def mapped(random: int = 0) -> HeadFeatures:
    features = HeadFeatures(WIDTH, random)
    features.standardise(standardisation(RECORDS.x))
    return features


def parts(records: Records) -> list[Records]:
    return [
        records.take(np.flatnonzero(records.labels == label))
        for label in range(CLASSES)
    ]


@pytest.mark.parametrize("random", [0, 12])
def test_they_are_sums_over_records(random: int) -> None:
    features = mapped(random)
    sums = sum_features(features, RECORDS, CLASSES + 1, "moments")
    rows = features(torch.from_numpy(RECORDS.x)).double().numpy()
    assert sums.moments is not None
    assert np.allclose(sums.moments, sum(np.outer(row, row) for row in rows))
    for label in range(CLASSES + 1):
        own = rows[RECORDS.labels == label]
        assert np.allclose(sums.class_sums[label], own.sum(axis=0))
        assert sums.counts[label] == (RECORDS.labels == label).sum()
    assert sums.records == 3000
    assert np.allclose(sums.mean, rows.mean(axis=0))


@pytest.mark.parametrize("sends", allowed_sums("moments"))
def test_clients_add_up_to_the_pool(sends: str) -> None:
    whole = sum_features(mapped(), RECORDS, CLASSES + 1, sends)
    each = [
        FeatureSums.of(sum_features(mapped(), part, CLASSES + 1, sends))
        for part in parts(RECORDS)
    ]
    totals = [(a + b + c).to_arrays() for a, b, c in permutations(each)]
    for total in totals:
        assert {name: array.tobytes() for name, array in total.items()} == {
            name: array.tobytes() for name, array in totals[0].items()
        }
    found = FeatureSums.from_arrays(totals[0]).value()
    assert (found.moments is None) == (sends == "class-sums")
    for name, values in vars(whole).items():
        if values is not None:
            assert np.allclose(
                getattr(found, name), values, rtol=0, atol=8 * 2.0**-SUM_BITS
            ), name
    assert {name: array.shape for name, array in totals[0].items()} == sums_shapes(
        CLASSES + 1, WIDTH, sends
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_cannot_be_summed_raises(value: float) -> None:
    bad = RECORDS.x.copy()
    bad[7, 1] = value
    with pytest.raises(ValueError, match="refused"):
        FeatureSums.of(
            sum_features(
                HeadFeatures(WIDTH), Records(bad, RECORDS.y), CLASSES + 1, "moments"
            )
        )

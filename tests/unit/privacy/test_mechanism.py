"""Rows in the unit ball as exact integers; noise calibrated against an independent
accountant, never from a seed.
"""

import itertools
import math

import dp_accounting
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from fedaux.config.sections import PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.privacy import mechanism
from fedaux.privacy.accounting import release_mechanism, total_epsilon
from fedaux.privacy.ledger import Ledger
from fedaux.privacy.mechanism import (
    GRID,
    UNIT_SENSITIVITY,
    Summary,
    clip_rows,
    max_norm,
    quantize,
    release,
    release_multiplier,
    unit_rows,
)

Vector = NDArray[np.float64]


@settings(deadline=None)
@given(
    hnp.arrays(
        np.float64, (3, 4), elements=st.floats(allow_nan=True, allow_infinity=True)
    )
)
def test_clipped_rows_lie_in_the_unit_ball_whatever_they_were(rows: np.ndarray) -> None:
    found = clip_rows(rows)
    assert np.isfinite(found).all()
    assert (np.linalg.norm(found, axis=1) <= 1 + 1e-12).all()
    for row, clipped in zip(rows, found, strict=True):
        if np.isfinite(row).all() and np.linalg.norm(row) <= 1:
            assert np.array_equal(row, clipped)
        elif not np.isfinite(row).all():
            assert not clipped.any()
    assert np.array_equal(found[1:2], clip_rows(rows[1:2]))  # each row by itself


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 3 * GRID))
def test_equal_shares_never_add_up_to_more_than_one_record(many: int) -> None:
    assert many * int(max_norm(np.array(1.0 / many))) <= GRID
    assert int(max_norm(np.array(1.0 / many))) == GRID // many


def test_a_share_shortens_and_one_changes_nothing() -> None:
    rows = unit_rows(np.random.default_rng(0).normal(size=(50, 6)))
    assert np.array_equal(quantize(rows, np.ones(50)), quantize(rows))
    shares = np.random.default_rng(1).uniform(0, 1, 50)
    assert (np.linalg.norm(quantize(rows, shares), axis=1) <= max_norm(shares)).all()
    assert np.allclose(quantize(rows, shares) / GRID, rows * shares[:, None], atol=1e-5)
    assert not quantize(rows, np.zeros(50)).any()


@pytest.mark.parametrize("width", [1, 2, 3, 1000, 123_457])
def test_norms_are_right_at_any_width(width: int) -> None:
    rows = np.random.default_rng(0).normal(size=(3, width)) * np.array(
        [[1e-9], [1.0], [1e200]]
    )
    norms = np.array(
        [
            np.linalg.norm(rows[0]),
            np.linalg.norm(rows[1]),
            np.linalg.norm(rows[2] / 1e200) * 1e200,
        ]
    )
    assert np.allclose(
        clip_rows(rows), rows / np.maximum(1.0, norms)[:, None], rtol=1e-12, atol=0.0
    )
    assert np.allclose(np.linalg.norm(unit_rows(rows), axis=1), 1.0)
    assert (np.square(quantize(unit_rows(rows))).sum(axis=1) <= GRID**2).all()


def naive_delta(multiplier: float, epsilon: float) -> float:
    """δ(ε) = E_P[(1 − e^{ε − L})₊] by brute numerical integration over two
    unit-distance Gaussians.
    """
    x = np.linspace(-60 * multiplier, 60 * multiplier + 1, 2_000_001)
    p, q = stats.norm.pdf(x, 1.0, multiplier), stats.norm.pdf(x, 0.0, multiplier)
    return float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), x))


@pytest.mark.parametrize(
    ("epsilon", "multiplier"), [(0.1, 10.0), (0.5, 3.0), (1.0, 2.0), (4.0, 0.8)]
)
def test_delta_is_the_hockey_stick_divergence(
    epsilon: float, multiplier: float
) -> None:
    assert mechanism.delta_of(multiplier, epsilon) == pytest.approx(
        naive_delta(multiplier, epsilon), rel=1e-6
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_the_analytic_multiplier_agrees_with_dp_accounting_and_is_never_below(
    epsilon: float, delta: float
) -> None:
    for size, reach in ((1, 2.0**21), (330, 2.0 * GRID), (100_000, 2.0 * GRID)):
        ours = mechanism.analytic_multiplier(epsilon, delta, size, reach)
        assert ours == pytest.approx(
            dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-4
        )
        cost = mechanism.discretisation(size, ours * reach)
        assert mechanism.delta_of(ours, epsilon - cost) * math.exp(cost) < delta
        assert (
            mechanism.epsilon_of(ours, mechanism.continuous_delta(delta, cost)) + cost
            <= epsilon
        )


def test_the_known_value() -> None:
    assert mechanism.continuous_multiplier(0.1, 1e-5) == pytest.approx(30.75, abs=0.01)
    found = [
        mechanism.multiplier(0.1, 1e-5, name, 330, 2.0 * GRID)
        for name in ("opendp", "analytic")
    ]
    assert found[0] / found[1] == pytest.approx(1.105, abs=0.005)


def test_coarse_steps_ask_for_more_noise_until_they_are_refused() -> None:
    noise = [
        mechanism.analytic_multiplier(0.1, 1e-5, 10, reach)
        for reach in (2.0**31, 64.0, 16.0)
    ]
    assert noise == sorted(noise)
    assert (
        noise[0]
        == mechanism.continuous_multiplier(0.1, 1e-5 * (1 - 1e-9))
        < 0.99 * noise[-1]
    )
    with pytest.raises(
        ValueError,
        match=r"too coarse for the analytic calibration of 10 numbers.*'opendp'",
    ):
        mechanism.analytic_multiplier(0.1, 1e-5, 10, 2.0)


def test_ten_thousand_steps_of_a_network_cost_nothing_on_this_grid() -> None:
    """10⁵ parameters at σ = .5."""
    assert 10_000 * mechanism.discretisation(100_000, 0.5 * GRID) < 1e-9


def certified_epsilon(
    size: int, scale: float, sensitivity: float, delta: float
) -> float:
    """What OpenDP itself certifies for the mechanism behind `add_noise` at this ℓ₂
    sensitivity.
    """
    approximate = dp.c.make_zCDP_to_approxDP(mechanism._mechanism(size, scale))
    return float(dp.c.make_fix_delta(approximate, delta).map(sensitivity)[0])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_opendp_certifies_its_own_multiplier_at_any_scale(epsilon: float) -> None:
    z = mechanism.opendp_multiplier(epsilon, 1e-5)
    for sensitivity in (1.0, 2.0**21, 2.0 * GRID):
        assert certified_epsilon(32, z * sensitivity, sensitivity, 1e-5) <= epsilon
        assert (
            certified_epsilon(32, 0.99 * z * sensitivity, sensitivity, 1e-5) > epsilon
        )
    assert 1.0 < z / mechanism.continuous_multiplier(epsilon, 1e-5) < 1.15


def test_unknown_certificate_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="opendp, analytic"):
        mechanism.multiplier(1.0, 1e-5, "trust-me", 1, 2.0 * GRID)


@pytest.mark.parametrize("scale", [5.0e6, 30.75 * 2 * GRID])
def test_noise_has_the_stated_law(scale: float) -> None:
    noise = mechanism.add_noise(np.full(6000, 7, dtype=np.int64), scale) - 7
    assert noise.dtype == np.int64
    # so often it is wrong by chance
    assert stats.kstest(noise / scale, "norm").pvalue > 1e-6


def test_noise_does_not_follow_any_seed() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        draws.append(mechanism.add_noise(np.zeros(8, dtype=np.int64), 1e6))
    assert not np.array_equal(*draws)


TAIL = 7.0  # e^(−24.5): far below every δ that is compared


EPSILONS = [-2.0, -0.5, -0.05, 0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0]


def lattice(scale: float, shift: int) -> tuple[Vector, Vector]:
    """The noise on a coordinate, and the same moved by `shift`, over all integers that
    matter.
    """
    far = math.ceil(8 * scale) + abs(shift)
    z = np.arange(-far, far + 1)
    total = np.exp(-0.5 * np.square(np.arange(-4 * far, 4 * far + 1) / scale)).sum()
    here, there = (
        np.exp(-0.5 * np.square(one / scale)) / total for one in (z, z - shift)
    )
    return here, there


def discrete_delta(scale: float, shift: tuple[int, ...], epsilon: float) -> float:
    """Σ_z (p(z) − e^ε p(z − Δ))₊ with nothing left out but e^(−32)."""
    here = there = np.ones(())
    for one in shift:
        p, q = lattice(scale, one)
        here, there = np.multiply.outer(here, p), np.multiply.outer(there, q)
    return float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())


@pytest.mark.parametrize("scale", [10.0, 11.3, 40.0])
def test_the_discrete_gaussian_is_nearly_the_rounded_one(scale: float) -> None:
    """Both inequalities between the two, which all else rests on; neither constant
    could be much smaller.
    """
    z = np.arange(-math.ceil(20 * scale), math.ceil(20 * scale) + 1)
    discrete = np.exp(-0.5 * np.square(z / scale))
    discrete /= discrete.sum()
    near = np.abs(z) + 0.5, np.abs(z) - 0.5
    rounded = ndtr(-near[1] / scale) - ndtr(-near[0] / scale)
    low, high = 1 / (24 * scale**2), np.square(z) / (24 * scale**4)
    ratio = np.log(discrete / rounded)
    assert (ratio <= low + 1e-12).all()
    assert ratio.max() > 0.99 * low
    assert (-ratio <= high + 1e-12).all()
    assert (-ratio).max() > 0.9 * high.max()


SHIFTS = [
    *[(one,) for one in (1, 2, 7, 10, 25, -40)],
    *[(1, 0), (3, -4), (8, 8), (0, 30)],
    *[(1, 1, 1), (2, -3, 6), (0, 10, 0), (9, 9, -9)],
]


@pytest.mark.parametrize("shift", SHIFTS, ids=str)
def test_discrete_noise_costs_no_more_than_is_proven(shift: tuple[int, ...]) -> None:
    distance = math.sqrt(sum(one * one for one in shift))
    for scale in (10.0,) if len(shift) == 3 else (10.0, 17.3, 40.0):
        cost = mechanism.discretisation(len(shift), scale, TAIL)
        assert cost < 0.1
        for epsilon in EPSILONS:
            continuous = mechanism.delta_of(scale / distance, epsilon)
            proven = math.exp(cost) * (continuous + math.exp(epsilon - TAIL**2 / 2))
            assert discrete_delta(scale, shift, epsilon + cost) <= proven + 1e-14


def test_without_its_cost_the_bound_would_be_wrong() -> None:
    """The discrete profile does pass above the continuous one, so the tests above have
    something to catch.
    """
    worst = 0.0
    for shift, epsilon in itertools.product([(one,) for one in range(1, 40)], EPSILONS):
        excess = discrete_delta(10.0, shift, epsilon) - mechanism.delta_of(
            10.0 / shift[0], epsilon
        )
        worst = max(worst, excess)
    assert worst > 1e-4


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("shift", [1, 4, 10, 30])
def test_a_sampled_sum_costs_no_more_either(rate: float, shift: int) -> None:
    """Replace-one: a record that is drawn with that rate moves the sum by `shift`, and
    its neighbour by −`shift`.
    """
    scale, x = 10.0, np.linspace(-200.0, 200.0, 400_001)
    cost = mechanism.discretisation(1, scale, TAIL)
    dense = [stats.norm.pdf(x, mean, scale) for mean in (0, shift, -shift)]
    z = np.arange(-200, 201)
    sparse = [
        np.exp(-0.5 * np.square((z - mean) / scale)) for mean in (0, shift, -shift)
    ]
    total = sparse[0].sum()

    def excess(laws: list[Vector], epsilon: float) -> Vector:
        rest, one, other = laws
        return np.maximum(
            (1 - rate) * rest
            + rate * one
            - math.exp(epsilon) * ((1 - rate) * rest + rate * other),
            0.0,
        )

    for epsilon in EPSILONS:
        continuous = float(np.trapezoid(excess(dense, epsilon), x))
        discrete = float(excess(sparse, epsilon + cost).sum() / total)
        assert (
            discrete
            <= math.exp(cost) * (continuous + math.exp(epsilon - TAIL**2 / 2)) + 1e-9
        )


def summary(size: int = 2000, adjacency: str = "replace-one") -> Summary:
    return Summary(
        np.arange(size, dtype=np.int64),
        step=1e-6,
        sensitivity=2.0**21,
        adjacency=adjacency,
        records=50,
    )


@pytest.mark.parametrize("calibration", ["opendp", "analytic"])
def test_noise_has_the_calibrated_scale(calibration: str) -> None:
    made = release(summary(), "a", PrivacyConfig(epsilon=1.0, calibration=calibration))
    assert (
        made.scale
        == release_multiplier(1.0, 1e-5, calibration, "replace-one", 2000) * 2.0**21
    )
    assert made.scale == pytest.approx(
        mechanism.multiplier(1.0, 1e-5, calibration, 2000, 2.0**21) * 2.0**21, rel=1e-6
    )
    assert np.std(made.arrays["values"] - np.arange(2000)) == pytest.approx(
        made.scale, rel=0.1
    )
    assert (made.records, made.adjacency, made.unsafe, made.sensitivity) == (
        50,
        "replace-one",
        False,
        2.0**21,
    )


def test_an_unsafe_seed_repeats_the_noise_and_is_marked() -> None:
    first, again = (
        release(summary(), "a", PrivacyConfig(epsilon=1.0, unsafe_seed=3))
        for _ in range(2)
    )
    other = release(summary(), "b", PrivacyConfig(epsilon=1.0, unsafe_seed=3))
    assert np.array_equal(first.arrays["values"], again.arrays["values"])
    assert not np.array_equal(first.arrays["values"], other.arrays["values"])
    assert first.unsafe
    # from the operating system
    one, two = (release(summary(8), "a", PrivacyConfig(epsilon=1.0)) for _ in range(2))
    assert not np.array_equal(one.arrays["values"], two.arrays["values"])


@pytest.mark.parametrize(
    ("values", "sensitivity"),
    [
        (np.zeros(3), 2.0),
        (np.zeros((2, 2), np.int64), 2.0),
        (np.zeros(3, np.int64), 0.01),
        (np.zeros(3, np.int64), np.inf),
    ],
)
def test_only_sound_summaries_can_be_released(
    values: np.ndarray, sensitivity: float
) -> None:
    with pytest.raises(ValueError, match="one vector of 64-bit integers"):
        Summary(values, 1.0, sensitivity, "replace-one", 10)


@pytest.mark.parametrize(
    ("adjacency", "fine"), [("replace-one", 2.0**17), ("add-remove", 2.0**16)]
)
def test_steps_too_coarse_for_the_proof_are_refused(
    adjacency: str, fine: float
) -> None:
    Summary(np.zeros(8, np.int64), 1.0, fine, adjacency, 10)
    with pytest.raises(ValueError, match="Choose a smaller step"):
        Summary(np.zeros(8, np.int64), 1.0, fine - 1, adjacency, 10)


@pytest.mark.parametrize("calibration", ["analytic", "opendp"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    ("epsilon", "delta", "size"),
    [(0.01, 1e-9, 33), (0.1, 1e-5, 330), (1.0, 1e-12, 33_000)],
)
def test_a_release_is_entered_for_no_more_than_its_epsilon(
    epsilon: float, delta: float, size: int, adjacency: str, calibration: str
) -> None:
    privacy = PrivacyConfig(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        calibration=calibration,
        declared_records=9,
    )
    assert (
        total_epsilon([release_mechanism(size, privacy)], delta, adjacency) <= epsilon
    )
    made = release(
        Summary(np.zeros(3, np.int64), 1.0, 2.0**21, adjacency, 10), "a", privacy
    )
    assert release_mechanism(3, privacy).noise_multiplier == pytest.approx(
        made.scale / made.sensitivity * UNIT_SENSITIVITY[adjacency], rel=1e-12
    )


def test_what_has_no_bound_is_released_in_studies_only() -> None:
    bare = Summary(np.arange(3), 1.0, 2.0**21, "replace-one", 5, bounded=False)
    with pytest.raises(
        ValueError, match=r"no bounded sensitivity.*privacy\.unsafe_seed"
    ):
        release(bare, "a", PrivacyConfig())
    made = release(bare, "a", PrivacyConfig(unsafe_seed=0))
    assert made.arrays["values"].tolist() == [0, 1, 2]
    assert made.unsafe
    assert (
        Ledger({"a": made}, {"a": Account(0.1, 1e-5, "replace-one", "record", 1)})
        .statement()
        .startswith("NOT PRIVATE")
    )

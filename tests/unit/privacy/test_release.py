"""A release carries the noise its budget needs, and says so when it does not."""

import numpy as np
import pytest

from fedaux.config.sections import PrivacyConfig
from fedaux.core.messages import Account
from fedaux.privacy import gaussian
from fedaux.privacy.accounting import total_epsilon
from fedaux.privacy.clipping import UNIT_SENSITIVITY
from fedaux.privacy.ledger import Ledger
from fedaux.privacy.release import Summary, release, release_mechanism, release_multiplier


def summary(size: int = 2000, adjacency: str = "replace-one") -> Summary:
    return Summary(np.arange(size, dtype=np.int64), step=1e-6, sensitivity=2.0**21, adjacency=adjacency, records=50)


@pytest.mark.parametrize("calibration", ["opendp", "analytic"])
def test_noise_has_the_calibrated_scale(calibration: str) -> None:
    made = release(summary(), "a", PrivacyConfig(epsilon=1.0, calibration=calibration))
    assert made.scale == release_multiplier(1.0, 1e-5, calibration, "replace-one", 2000) * 2.0**21
    assert made.scale == pytest.approx(gaussian.multiplier(1.0, 1e-5, calibration, 2000, 2.0**21) * 2.0**21, rel=1e-6)
    assert np.std(made.arrays["values"] - np.arange(2000)) == pytest.approx(made.scale, rel=0.1)
    assert (made.records, made.adjacency, made.unsafe, made.sensitivity) == (50, "replace-one", False, 2.0**21)


def test_more_budget_means_less_noise() -> None:
    scales = [release(summary(4), "a", PrivacyConfig(epsilon=eps)).scale for eps in (0.1, 1.0, 10.0)]
    assert scales == sorted(scales, reverse=True)


def test_an_unsafe_seed_repeats_the_noise_and_is_marked() -> None:
    first, again = (release(summary(), "a", PrivacyConfig(epsilon=1.0, unsafe_seed=3)) for _ in range(2))
    other = release(summary(), "b", PrivacyConfig(epsilon=1.0, unsafe_seed=3))
    assert np.array_equal(first.arrays["values"], again.arrays["values"])
    assert not np.array_equal(first.arrays["values"], other.arrays["values"])
    assert first.unsafe


def test_without_it_no_two_releases_agree() -> None:
    one, two = (release(summary(8), "a", PrivacyConfig(epsilon=1.0)) for _ in range(2))
    assert not np.array_equal(one.arrays["values"], two.arrays["values"])
    assert not one.unsafe


@pytest.mark.parametrize(
    ("values", "sensitivity"),
    [
        (np.zeros(3), 2.0),
        (np.zeros((2, 2), np.int64), 2.0),
        (np.zeros(3, np.int64), 0.01),
        (np.zeros(3, np.int64), np.inf),
    ],
)
def test_only_sound_summaries_can_be_released(values: np.ndarray, sensitivity: float) -> None:
    with pytest.raises(ValueError, match="one vector of 64-bit integers"):
        Summary(values, 1.0, sensitivity, "replace-one", 10)


@pytest.mark.parametrize(("adjacency", "fine"), [("replace-one", 2.0**17), ("add-remove", 2.0**16)])
def test_steps_too_coarse_for_the_proof_are_refused(adjacency: str, fine: float) -> None:
    Summary(np.zeros(8, np.int64), 1.0, fine, adjacency, 10)
    with pytest.raises(ValueError, match="choose a smaller step"):
        Summary(np.zeros(8, np.int64), 1.0, fine - 1, adjacency, 10)


@pytest.mark.parametrize("calibration", ["analytic", "opendp"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("epsilon", "delta", "size"), [(0.01, 1e-9, 33), (0.1, 1e-5, 330), (1.0, 1e-12, 33_000)])
def test_a_release_is_entered_for_no_more_than_its_epsilon(
    epsilon: float, delta: float, size: int, adjacency: str, calibration: str
) -> None:
    privacy = PrivacyConfig(
        epsilon=epsilon, delta=delta, adjacency=adjacency, calibration=calibration, declared_records=9
    )
    mechanism = release_mechanism(size, privacy)
    assert total_epsilon([mechanism], delta, adjacency) <= epsilon
    made = release(Summary(np.zeros(3, np.int64), 1.0, 2.0**21, adjacency, 10), "a", privacy)
    assert release_mechanism(3, privacy).noise_multiplier == pytest.approx(
        made.scale / made.sensitivity * UNIT_SENSITIVITY[adjacency], rel=1e-12
    )


def test_what_has_no_bound_is_released_in_studies_only() -> None:
    bare = Summary(np.arange(3), 1.0, 2.0**21, "replace-one", 5, bounded=False)
    with pytest.raises(ValueError, match=r"no bounded sensitivity.*privacy\.unsafe_seed"):
        release(bare, "a", PrivacyConfig())
    made = release(bare, "a", PrivacyConfig(unsafe_seed=0))
    assert made.arrays["values"].tolist() == [0, 1, 2]
    assert made.unsafe
    assert (
        Ledger({"a": made}, {"a": Account(0.1, 1e-5, "replace-one", "record", 1)}).statement().startswith("NOT PRIVATE")
    )

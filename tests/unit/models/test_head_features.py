"""What heads are trained on: standardised by public statistics, and folded away without a trace."""

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.models import HeadFeatures, flatten_state, linear_head
from fedaux.models.head_features import FLOOR, hidden_head, standardisation

WIDTH, CLASSES = 6, 3
RNG = np.random.default_rng(0)
NEGATIVES = (RNG.normal(size=(500, WIDTH)) * [1, 10, 0.1, 2, 5, 1] + np.arange(WIDTH)).astype(np.float32)
ROWS = torch.from_numpy((RNG.normal(size=(40, WIDTH)) * 3 + 1).astype(np.float32))


def features(random: int = 0, raw: bool = False) -> HeadFeatures:
    made = HeadFeatures(WIDTH, random)
    made.standardise({} if raw else standardisation(NEGATIVES))
    return made


def test_public_rows_get_mean_0_and_deviation_1() -> None:
    z = features()(torch.from_numpy(NEGATIVES)).numpy()
    assert np.allclose(z.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(z.std(axis=0), 1, atol=1e-4)


def test_a_feature_that_hardly_varies_in_public_is_not_blown_up() -> None:
    dead = NEGATIVES.copy()
    dead[:, 2] = 0
    root_mean_square = np.sqrt((dead.std(axis=0, dtype=np.float64) ** 2).mean())
    assert standardisation(dead)["deviation"][2] == pytest.approx(FLOOR * root_mean_square)
    assert (standardisation(np.ones((5, 3), np.float32))["deviation"] == 1).all()


def test_raw_features_pass_as_they_are() -> None:
    assert features(raw=True)(ROWS) is ROWS


def test_random_features_are_the_same_wherever_they_are_made() -> None:
    one, two = features(20)(ROWS), features(20)(ROWS)
    assert one.shape == (40, 20)
    assert torch.equal(one, two)
    assert (one >= 0).all()
    assert 0.2 < (one > 0).float().mean() < 0.8  # neither dead nor linear


@pytest.mark.parametrize("random", [0, 20])
@pytest.mark.parametrize("raw", [False, True])
def test_a_folded_head_needs_no_map(random: int, raw: bool) -> None:
    mapped, head = features(random, raw), nn.Linear(random or WIDTH, CLASSES)
    plain = mapped.fold(head)
    assert not any(isinstance(module, HeadFeatures) for module in plain.modules())
    assert torch.allclose(plain(ROWS), head(mapped(ROWS)), atol=1e-5)
    if random:
        hidden_head(WIDTH, random, CLASSES).load_state_dict(plain.state_dict())


@pytest.mark.parametrize("raw", [False, True])
def test_a_head_on_raw_features_is_unfolded(raw: bool) -> None:
    mapped, head = features(raw=raw), nn.Linear(WIDTH, CLASSES)
    weight, bias = mapped.unfold(head.weight, head.bias)
    assert torch.allclose(nn.functional.linear(mapped(ROWS), weight, bias), head(ROWS), atol=1e-4)
    with pytest.raises(ValueError, match="random features"):
        features(20).unfold(head.weight, head.bias)


def test_the_map_does_not_travel_with_the_head() -> None:
    assert {name: array.shape for name, array in flatten_state(linear_head(WIDTH, CLASSES, 20)).items()} == {
        "parameters": (CLASSES * 21,)
    }


@pytest.mark.parametrize(
    "change",
    [
        {"mean": np.zeros(WIDTH + 1, np.float32)},
        {"mean": np.full(WIDTH, np.nan, np.float32)},
        {"deviation": np.zeros(WIDTH, np.float32)},
        {"deviation": np.full(WIDTH, np.inf, np.float32)},
        {"more": np.zeros(WIDTH, np.float32)},
    ],
)
def test_statistics_that_make_no_sense_are_refused(change: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="mean and deviation"):
        HeadFeatures(WIDTH).standardise({**standardisation(NEGATIVES), **change})

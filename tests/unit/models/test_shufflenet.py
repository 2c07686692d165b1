"""ShuffleNet: the size of the study to the parameter, its width, and channels that really are shuffled."""

import pytest
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build
from helpers.networks import parameter_count


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_parameter_counts_are_exact(norm: str) -> None:
    model = build(PrototypeSpec.of("shufflenet", norm=norm), (3, 32, 32), 10, seed=0)
    assert (parameter_count(model.features), parameter_count(model), model.width) == (879_572, 887_582, 800)
    assert parameter_count(build(PrototypeSpec.of("shufflenet", norm=norm), (3, 32, 32), 100, seed=0)) == 959_672


def test_the_papers_stem_differs_by_less_than_a_thousandth() -> None:
    count = parameter_count(build(PrototypeSpec.of("shufflenet", stem=3), (3, 32, 32), 10, seed=0))
    assert count == 888_158
    assert count / 887_582 - 1 < 1e-3


def test_width_scales_the_features() -> None:
    model = build(PrototypeSpec.of("shufflenet", width=48), (3, 32, 32), 10, seed=0).eval()
    assert model.width == 192
    assert model.features(torch.zeros(2, 3, 32, 32)).shape == (2, 192)

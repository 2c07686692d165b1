"""ResNet-8: exact size and width."""

import pytest
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build
from helpers.networks import parameter_count


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_parameter_counts_are_exact(norm: str) -> None:
    model = build(PrototypeSpec.of("resnet8", norm=norm), (3, 32, 32), 10, seed=0)
    assert (parameter_count(model.features), parameter_count(model), model.width) == (4_898_112, 4_903_242, 512)
    assert parameter_count(build(PrototypeSpec.of("resnet8", norm=norm), (3, 32, 32), 100, seed=0)) == 4_949_412


def test_the_last_stage_has_eight_times_the_width() -> None:
    model = build(PrototypeSpec.of("resnet8", width=16), (3, 32, 32), 10, seed=0).eval()
    assert model.width == 128
    assert model.features(torch.zeros(2, 3, 32, 32)).shape == (2, 128)

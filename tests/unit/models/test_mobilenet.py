"""MobileNetV2: the size of the study to the parameter, and its width."""

import pytest
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build
from helpers.networks import parameter_count


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_parameter_counts_are_exact(norm: str) -> None:
    model = build(PrototypeSpec.of("mobilenetv2", norm=norm), (3, 32, 32), 10, seed=0)
    assert (parameter_count(model.features), parameter_count(model), model.width) == (597_768, 604_178, 640)
    assert parameter_count(build(PrototypeSpec.of("mobilenetv2", norm=norm), (3, 32, 32), 100, seed=0)) == 661_868


def test_width_scales_the_features() -> None:
    model = build(PrototypeSpec.of("mobilenetv2", width=0.25), (3, 32, 32), 10, seed=0).eval()
    assert model.width == 320
    assert model.features(torch.zeros(2, 3, 32, 32)).shape == (2, 320)

"""ShuffleNet v1 with two groups for 32×32 images, after Zhang et al., "ShuffleNet" (2018), table 1."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.models.layers import Extractor, conv, image_channels
from fedaux.models.registry import register

GROUPS, STEM, REPEATS = 2, 24, (4, 8, 4)


class Unit(nn.Module):
    """Grouped 1×1, channel shuffle, 3×3 depthwise, grouped 1×1; with stride 2 the pooled input is appended."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(3, stride=2, padding=1) if stride == 2 else None
        branch = outputs - inputs if stride == 2 else outputs  # the pooled input supplies the other channels
        middle = branch // 4
        # section 3.2: the input of the first unit has too few channels to be split into groups
        self.residual = nn.Sequential(
            conv(inputs, middle, norm, groups=1 if inputs == STEM else GROUPS, act=nn.ReLU),
            nn.ChannelShuffle(GROUPS),
            conv(middle, middle, norm, kernel=3, stride=stride, groups=middle),
            conv(middle, branch, norm, groups=GROUPS),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.residual(x)
        return F.relu(out + x if self.pool is None else torch.cat([out, self.pool(x)], dim=1))


@register("shufflenet")
def shufflenet(shape: tuple[int, ...], width: int = 200, norm: str = "batch", stem: int = 1) -> Extractor:
    """(B, C, H, W) → (B, 4·width): stages of width·(1, 2, 4) channels after a `stem`×`stem` stem of stride 1.

    With a head for 10 classes the default has 887,582 parameters on RGB images, as in the FedAUX paper. To match this
    number, the stem is 1×1 (ShuffleNet's 3×3, `stem=3`, has 576 parameters more), and the bottleneck has a quarter of
    the channels that a unit computes itself, without those of its pooled input.
    """
    if width <= STEM or width % (4 * GROUPS):
        raise ValueError(
            f"the width of shufflenet is a multiple of {4 * GROUPS} above {STEM} (200 in the paper), not {width}"
        )
    if stem not in (1, 3):
        raise ValueError(f"the stem of shufflenet is 1 (as in the study) or 3 (as in the paper), not {stem}")
    inputs = STEM
    units: list[nn.Module] = []
    for outputs, repeats in zip((width, 2 * width, 4 * width), REPEATS, strict=True):
        for index in range(repeats):
            units.append(Unit(inputs, outputs, stride=2 if index == 0 else 1, norm=norm))
            inputs = outputs
    first = conv(image_channels("shufflenet", shape, norm), STEM, norm, kernel=stem, act=nn.ReLU)
    return Extractor(first, *units, nn.AdaptiveAvgPool2d(1), nn.Flatten(), width=inputs)

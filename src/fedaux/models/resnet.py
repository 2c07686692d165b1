"""ResNet-8 after He et al., "Deep Residual Learning for Image Recognition" (2016): four stages of one basic block."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.models.layers import Extractor, conv, image_channels, require_positive
from fedaux.models.registry import register


class BasicBlock(nn.Module):
    """relu(two 3×3 convolutions + shortcut); the shortcut is a 1×1 projection only where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv(inputs, outputs, norm, kernel=3, stride=stride, act=nn.ReLU), conv(outputs, outputs, norm, kernel=3)
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, norm, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


@register("resnet8")
def resnet8(shape: tuple[int, ...], width: int = 64, norm: str = "batch") -> Extractor:
    """(B, C, H, W) → (B, 8·width): stages of width·(1, 2, 4, 8) channels, 3×3 stem of stride 1, no max-pooling.

    At width 64 the encoder has 4,898,112 parameters on RGB images. The ResNet-8 of FedDF has three stages of 16, 32
    and 64 channels, so state the width beside every number.
    """
    require_positive(width=width)
    stages = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [
        BasicBlock(inputs, outputs, stride, norm)
        for inputs, outputs, stride in zip(stages, stages[1:], (1, 2, 2, 2), strict=False)
    ]
    stem = conv(image_channels("resnet8", shape, norm), width, norm, kernel=3, act=nn.ReLU)
    return Extractor(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), width=8 * width)

"""MobileNetV2 for 32×32 images: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018)."""

from __future__ import annotations

from torch import Tensor, nn

from fedaux.models.layers import Extractor, conv, image_channels, require_positive
from fedaux.models.registry import register

# table 2 of the paper: (expansion, channels, repeats, stride), with the early strides 2 for 224×224 images set to 1
STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM, LAST = 32, 1280


class InvertedResidual(nn.Module):
    """1×1 expansion, 3×3 depthwise, linear 1×1 projection; a shortcut wherever the stride is 1."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, norm: str) -> None:
        super().__init__()
        hidden = expansion * inputs
        self.residual = nn.Sequential(
            conv(inputs, hidden, norm, act=nn.ReLU6),
            conv(hidden, hidden, norm, kernel=3, stride=stride, groups=hidden, act=nn.ReLU6),
            conv(hidden, outputs, norm),
        )
        self.shortcut: nn.Module | None = None
        if stride == 1:
            self.shortcut = nn.Identity() if inputs == outputs else conv(inputs, outputs, norm)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.residual(x)
        return out if self.shortcut is None else out + self.shortcut(x)


@register("mobilenetv2")
def mobilenetv2(shape: tuple[int, ...], width: float = 0.5, norm: str = "batch") -> Extractor:
    """(B, C, H, W) → (B, 1280·width): every stage but the stem is scaled by `width`; 32×32 images are reduced to 4×4.

    With a head for 10 classes the default has 604,178 parameters on RGB images, as in the FedAUX paper. To match this
    number, the stem keeps its 32 channels, the first block has a 1×1 convolution although it expands by one, and a
    block of stride 1 that changes the channels has a 1×1 shortcut.
    """
    require_positive(width=width)
    inputs = STEM
    blocks: list[nn.Module] = []
    for expansion, channels, repeats, stride in STAGES:
        outputs = max(1, round(channels * width))
        for index in range(repeats):
            blocks.append(InvertedResidual(inputs, outputs, expansion, stride if index == 0 else 1, norm))
            inputs = outputs
    stem = conv(image_channels("mobilenetv2", shape, norm), STEM, norm, kernel=3, act=nn.ReLU6)
    features = max(1, round(LAST * width))
    last = conv(inputs, features, norm, act=nn.ReLU6)
    return Extractor(stem, *blocks, last, nn.AdaptiveAvgPool2d(1), nn.Flatten(), width=features)

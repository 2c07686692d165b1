"""Small networks for plain rows and small images, by default with GroupNorm."""

from __future__ import annotations

from math import prod

from torch import nn

from fedaux.models.layers import NORMS, Extractor, conv, image_channels, make_norm, require_positive
from fedaux.models.registry import register


def dense(inputs: int, outputs: int, norm: str) -> nn.Sequential:
    """(B, inputs) → (B, outputs): linear, norm, ReLU."""
    linear = nn.Linear(inputs, outputs, bias=norm == "none")
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    return nn.Sequential(linear, make_norm(norm, outputs, image=False), nn.ReLU())


@register("mlp")
def mlp(shape: tuple[int, ...], hidden: int = 128, features: int = 64, norm: str = "group") -> Extractor:
    """(B, *shape) → (B, features): a flattened row through one hidden layer."""
    require_positive(hidden=hidden, features=features)
    if not shape or min(shape) < 1:
        raise ValueError(
            f"prototype 'mlp' expects rows of at least one number, not of shape {tuple(shape)}; "
            "for text 'bert' or 'encoder' will do"
        )
    return Extractor(nn.Flatten(), dense(prod(shape), hidden, norm), dense(hidden, features, norm), width=features)


@register("cnn")
def cnn(shape: tuple[int, ...], width: int = 32, features: int = 64, norm: str = "group") -> Extractor:
    """(B, C, H, W) → (B, features): two 3×3 convolutions of width·(1, 2) channels, 4×4 pooled, one dense layer.

    For images from 8×8 to 28×28: pooling to a fixed grid takes any size and keeps positions.
    """
    require_positive(width=width, features=features)
    return Extractor(
        conv(image_channels("cnn", shape, norm, NORMS), width, norm, kernel=3, act=nn.ReLU),
        nn.MaxPool2d(2, ceil_mode=True),
        conv(width, 2 * width, norm, kernel=3, act=nn.ReLU),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        dense(16 * 2 * width, features, norm),
        width=features,
    )

"""Layers that the networks share: the extractor, normalisation by name, and convolution + norm."""

from __future__ import annotations

from torch import nn

from fedaux.core.errors import unknown_name

NORMS = ("batch", "group", "none")
DEEP_NORMS = ("batch", "group")  # without one, features of an untrained ShuffleNet are of the order of 1000


class Extractor(nn.Sequential):
    """A sequence of layers with `width` output features: (B, *shape) → (B, width)."""

    def __init__(self, *layers: nn.Module, width: int) -> None:
        super().__init__(*layers)
        self.width: int = width


def group_count(channels: int) -> int:
    """The number of groups for GroupNorm: at most 32, of at least 16 channels if possible (Wu & He 2018, table 3)."""
    return next(groups for groups in range(max(1, min(32, channels // 16)), 0, -1) if channels % groups == 0)


def make_norm(kind: str, channels: int, *, image: bool = True) -> nn.Module:
    """`batch` (Ioffe & Szegedy 2015), `group` (Wu & He 2018: no buffers, rows do not mix, fit for DP-SGD) or `none`."""
    if kind not in NORMS:
        raise unknown_name("norm", kind, NORMS)
    if kind == "batch":
        return nn.BatchNorm2d(channels) if image else nn.BatchNorm1d(channels)
    return nn.GroupNorm(group_count(channels), channels) if kind == "group" else nn.Identity()


def conv(
    inputs: int,
    outputs: int,
    norm: str,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = None,
) -> nn.Sequential:
    """Convolution with same padding, norm, and activation if given; He et al. (2015) initialisation."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=norm == "none")
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(layer, make_norm(norm, outputs), *([act()] if act else []))


def image_channels(name: str, shape: tuple[int, ...], norm: str, norms: tuple[str, ...] = DEEP_NORMS) -> int:
    """The number of channels; an error if `shape` is no image or the network does not support `norm`."""
    if norm not in norms:
        raise unknown_name(f"norm for {name!r}", norm, norms)
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"prototype {name!r} expects images (channels, height, width), not rows of shape {tuple(shape)}; "
            "use 'mlp' for plain rows, for text 'bert' or 'encoder', or a prototype of your own as module:function"
        )
    return shape[0]


def require_positive(**options: float) -> None:
    """Raise if an option is not above 0."""
    for name, value in options.items():
        if not value > 0:
            raise ValueError(f"{name} must be greater than 0, not {value}")

"""The few bricks the networks share: normalisation by name, convolution + norm, and the extractor with its width."""

from __future__ import annotations

from torch import nn

from fedaux.core.errors import unknown_name

NORMS = ("batch", "group", "none")
DEEP_NORMS = ("batch", "group")  # without any, the features of a fresh ShuffleNet are of the order of 1000


class Extractor(nn.Sequential):
    """Layers in a row that end in `width` features: (B, *shape) → (B, width)."""

    def __init__(self, *layers: nn.Module, width: int) -> None:
        super().__init__(*layers)
        self.width: int = width


def group_count(channels: int) -> int:
    """At most 32 groups, each of 16 or more channels where there are as many, all of the same size.

    Both numbers are those of Wu & He (2018, table 3); sixteen also leaves enough values where there is no image plane.
    """
    return next(groups for groups in range(max(1, min(32, channels // 16)), 0, -1) if channels % groups == 0)


def make_norm(kind: str, channels: int, *, image: bool = True) -> nn.Module:
    """`batch` (Ioffe & Szegedy 2015), `group` (Wu & He 2018: no buffers, rows never mix, fit for DP-SGD) or `none`."""
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
    """Convolution that keeps the size (up to its stride), norm, and `act` if given; He et al. (2015) initialisation."""
    weights = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=norm == "none")
    nn.init.kaiming_normal_(weights.weight, nonlinearity="relu")
    return nn.Sequential(weights, make_norm(norm, outputs), *([act()] if act else []))


def image_channels(name: str, shape: tuple[int, ...], norm: str, norms: tuple[str, ...] = DEEP_NORMS) -> int:
    """The channels of an image shape; any other shape, and a norm the network cannot do with, is refused."""
    if norm not in norms:
        raise unknown_name(f"norm for {name!r}", norm, norms)
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"prototype {name!r} expects images (channels, height, width), not rows of shape {tuple(shape)}; "
            "use 'mlp' for plain rows, for text 'bert' or 'encoder', or a prototype of your own as module:function"
        )
    return shape[0]


def require_positive(**options: float) -> None:
    """Refuse sizes of zero and below before they become an empty layer."""
    for name, value in options.items():
        if not value > 0:
            raise ValueError(f"{name} must be greater than 0, not {value}")

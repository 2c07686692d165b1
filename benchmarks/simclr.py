"""B9: a step of P1 for images, reading and making views included, beside a PyTorch step
on views that are ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import Row, compare
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.data.records import Records
from fedaux.models import build
from fedaux.models.compute import Compute, place
from fedaux.models.pretraining.tasks import SimCLR, random_views

BATCH = 128
TEMPERATURE = 0.5
CROP = 0.2  # the smallest share of an image in a view
CASES = [
    (PrototypeSpec.of("resnet8", width=width), precision)
    for width in (16, 64)
    for precision in ("float32",)
]


def contrast(projected: Tensor) -> Tensor:
    views = F.normalize(projected, dim=1)
    similarity = (views @ views.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    return F.cross_entropy(similarity, torch.arange(2 * BATCH).roll(BATCH))


def rows() -> Iterator[Row]:
    for spec, precision in CASES:
        yield row(spec, precision)


def row(spec: PrototypeSpec, precision: str) -> Row:
    images = Records(
        np.random.default_rng(0).integers(0, 256, (BATCH, 32, 32, 3), dtype=np.uint8)
    )
    config = PretrainConfig(
        batch_size=BATCH, temperature=TEMPERATURE, min_crop_area=CROP
    )
    model = place(build(spec, images.shape, 10, seed=0), Compute(precision=precision))
    task = SimCLR(model.features, model.width, images, config, seed=0)
    generator = torch.Generator().manual_seed(0)
    task.model.train()
    extractor = build(spec, images.shape, 10, seed=0).features
    head = nn.Sequential(
        nn.Linear(model.width, model.width),
        nn.ReLU(),
        nn.Linear(model.width, config.projection_dim),
    )
    network = nn.Sequential(extractor, head).to(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(
        network.parameters(), lr=config.lr, weight_decay=config.weight_decay
    )
    views = torch.cat(
        [
            random_views(images.tensor(), generator, crop=CROP, flip=True)
            for _ in range(2)
        ]
    )
    views = views.contiguous(memory_format=torch.channels_last)

    def ours() -> None:
        task.optimizer.zero_grad(set_to_none=True)
        task.backward(np.arange(BATCH), generator, seed=0)
        task.optimizer.step()

    def bare() -> None:
        optimiser.zero_grad()
        with (
            torch.autocast("cpu", torch.bfloat16)
            if precision == "bfloat16"
            else nullcontext()
        ):
            projected = network(views).float()
        loss = contrast(projected)
        loss.backward()
        optimiser.step()
        loss.item()

    return compare(
        "B9",
        f"SSL step, {spec.label}, {precision}, {BATCH} images / on ready views",
        1.05,
        ours,
        bare,
    )

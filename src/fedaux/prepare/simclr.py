"""P1: contrastive pre-training of an extractor on auxiliary images (Chen et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.config import PretrainConfig
from fedaux.data.records import Records, is_image
from fedaux.prepare.augment import random_views
from fedaux.seeds import derive, seeded_torch, torch_stream
from fedaux.train.local import batches


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Each view must pick its partner among all other 2B − 1 views by cosine similarity. first, second: (B, D)."""
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = views @ views.T / temperature
    similarity.fill_diagonal_(-torch.inf)
    size = len(first)
    partner = torch.cat([torch.arange(size, 2 * size), torch.arange(size)])
    return F.cross_entropy(similarity, partner)


def pretrain(
    extractor: nn.Module,
    width: int,
    aux: Records,
    config: PretrainConfig,
    seed: int,
    watch: Callable[[int, float], None],
) -> list[float]:
    """Train `extractor` in place on all of D_aux, without labels; returns the loss of each epoch.

    `watch(epoch, loss)` is called after each. Adam with a tenth of the steps as warm-up, then a cosine to zero.
    """
    if not is_image(aux.x):
        raise ValueError(
            "pre-training needs auxiliary images (uint8, N×H×W×C); "
            "for other data set pretrain.epochs = 0, or use a method without +P"
        )
    with seeded_torch(derive(seed, "projection")):
        projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, config.projection))
    model = nn.Sequential(extractor, projection).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    steps = config.epochs * math.ceil(len(aux) / config.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, steps))
    losses = []
    for epoch in range(config.epochs):
        generator = torch_stream(seed, epoch)
        total = 0.0
        for rows in batches(len(aux), config.batch, generator):
            images = aux.tensor(rows)
            views = [random_views(images, generator, crop=config.crop, flip=config.flip) for _ in range(2)]
            with seeded_torch(derive(seed, "forward", epoch, int(rows[0]))):  # dropout, where there is any
                first, second = model(torch.cat(views)).chunk(2)
            loss = nt_xent(first, second, config.temperature)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            total += loss.item() * len(rows)
        losses.append(total / len(aux))
        watch(epoch + 1, losses[-1])
    return losses


def _rate(step: int, steps: int) -> float:
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

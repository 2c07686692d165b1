"""P1 for images: SimCLR (Chen et al. 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.config.sections import PretrainConfig
from fedaux.core.rng import derive_seed, seeded_torch
from fedaux.data.records import Indices, Records, is_image
from fedaux.models.compute import forward
from fedaux.pretraining.augment import random_views
from fedaux.pretraining.metrics import FeatureQuality, feature_quality
from fedaux.pretraining.trainer import SelfSupervisedTask


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """The NT-Xent loss of two views (B, D) each: cosine similarity, each view against all other 2B − 1."""
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = views @ views.T / temperature
    similarity.fill_diagonal_(-torch.inf)
    size = len(first)
    partner = torch.arange(2 * size, device=similarity.device).roll(size)
    return F.cross_entropy(similarity, partner)


class SimCLR(SelfSupervisedTask):
    """Contrast two random views of each image with all others in the batch."""

    views = 2

    def __init__(self, extractor: nn.Module, width: int, aux: Records, config: PretrainConfig, seed: int) -> None:
        if not is_image(aux.x):
            raise ValueError(
                "pre-training needs auxiliary images (uint8, N×H×W×C) or text; "
                "for other data set pretrain.epochs = 0, or use a method without +P"
            )
        with seeded_torch(derive_seed(seed, "projection")):
            projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, config.projection_dim))
        super().__init__(extractor, projection, aux, config, seed)

    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        """In one pass, or with `micro_batch_size` by gradient caching (Gao et al. 2021).

        The contrast is still over the whole batch: a first pass computes all projections and the gradient of the loss
        with respect to them, a second backpropagates it part by part. BatchNorm sees the parts.
        """
        views = self.compute.put(torch.cat(self._views(rows, generator))).to(memory_format=torch.channels_last)
        size = self.config.micro_batch_size or len(views)
        parts = views.tensor_split(-(-len(views) // size))
        if len(parts) == 1:
            loss = self._loss(self._project(views, seed))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()
        with torch.no_grad():
            projected = torch.cat([self._project(part, derive_seed(seed, i)) for i, part in enumerate(parts)])
        loss = self._loss(projected.requires_grad_())
        loss.backward()  # type: ignore[no-untyped-call]
        assert projected.grad is not None
        gradients = torch.split(projected.grad, [len(part) for part in parts])
        for i, (part, gradient) in enumerate(zip(parts, gradients, strict=True)):
            self._project(part, derive_seed(seed, i)).backward(gradient)  # type: ignore[no-untyped-call]
        return loss.item()

    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        views = self._views(rows, generator)
        return feature_quality(*(self.extractor(self.compute.put(view)).float().cpu() for view in views))

    def _views(self, rows: Indices, generator: torch.Generator) -> list[Tensor]:
        images = self.aux.tensor(rows)
        return [
            random_views(images, generator, crop=self.config.min_crop_area, flip=self.config.flip) for _ in range(2)
        ]

    def _project(self, views: Tensor, seed: int) -> Tensor:
        with seeded_torch(seed):
            return forward(self.model, views)

    def _loss(self, projected: Tensor) -> Tensor:
        first, second = projected.chunk(2)
        return nt_xent(first, second, self.config.temperature)

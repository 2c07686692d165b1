"""P1 for images: contrastive pre-training (Chen et al. 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.config.schema import PretrainConfig
from fedaux.core.rng import derive_seed, seeded_torch
from fedaux.data.records import Indices, Records, is_image
from fedaux.pretraining.augment import random_views
from fedaux.pretraining.metrics import FeatureQuality, feature_quality
from fedaux.pretraining.trainer import SelfSupervisedTask, autocast


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Each view must pick its partner among all other 2B − 1 views by cosine similarity. first, second: (B, D)."""
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = views @ views.T / temperature
    similarity.fill_diagonal_(-torch.inf)
    size = len(first)
    partner = torch.cat([torch.arange(size, 2 * size), torch.arange(size)]).to(similarity.device)
    return F.cross_entropy(similarity, partner)


class SimCLR(SelfSupervisedTask):
    """Two random views of each image in a batch must find each other among all the others."""

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
        """In one pass, or with `micro_batch_size` in parts that need the memory of one part (Gao et al. 2021).

        Every view is contrasted with the whole batch all the same: a first pass finds all projections and the gradient
        of the loss by them, a second carries that gradient on through the network, part by part. BatchNorm sees parts.
        """
        views = torch.cat(self._views(rows, generator)).to(self.device, memory_format=torch.channels_last)
        parts = (
            views.tensor_split(-(-len(views) // self.config.micro_batch_size))
            if self.config.micro_batch_size
            else [views]
        )
        if len(parts) == 1:
            loss = self._loss(self._project(views, seed))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()
        with torch.no_grad():
            found = torch.cat(
                [self._project(part, derive_seed(seed, part_number)) for part_number, part in enumerate(parts)]
            )
        loss = self._loss(found.requires_grad_())
        loss.backward()  # type: ignore[no-untyped-call]
        assert found.grad is not None
        gradients = torch.split(found.grad, [len(part) for part in parts])
        for part_number, (part, gradient) in enumerate(zip(parts, gradients, strict=True)):
            self._project(part, derive_seed(seed, part_number)).backward(gradient)  # type: ignore[no-untyped-call]
        return loss.item()

    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        first, second = self._views(rows, generator)
        return feature_quality(*(self.extractor(view.to(self.device)).float().cpu() for view in (first, second)))

    def _views(self, rows: Indices, generator: torch.Generator) -> list[Tensor]:
        images = self.aux.tensor(rows)
        return [
            random_views(images, generator, crop=self.config.min_crop_area, flip=self.config.flip) for _ in range(2)
        ]

    def _project(self, views: Tensor, seed: int) -> Tensor:
        with seeded_torch(seed), autocast(self.config.precision, self.device):
            projected: Tensor = self.model(views).float()
        return projected

    def _loss(self, projected: Tensor) -> Tensor:
        first, second = projected.chunk(2)
        return nt_xent(first, second, self.config.temperature)

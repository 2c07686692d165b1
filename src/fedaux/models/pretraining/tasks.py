"""P1: SimCLR for images (Chen et al. 2020), masked-language-model pre-training for text
(Devlin et al. 2019), corrupted rows for tables (Bahri et al. 2022).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.config.sections import PretrainConfig
from fedaux.core.rng import derive_seed, seeded_torch
from fedaux.data.records import Indices, Records, is_image, is_table
from fedaux.models.compute import forward
from fedaux.models.encoders import TextExtractor
from fedaux.models.networks import TableMap
from fedaux.models.pretraining.trainer import (
    FeatureQuality,
    SelfSupervisedTask,
    feature_quality,
)

_LUMA = (0.299, 0.587, 0.114)
MASKED = 0.15  # fraction of tokens to predict; this and the next are BERT's
# fractions of those left unchanged, or replaced by a random token; the rest becomes
# [MASK]
KEPT = 0.1
RANDOM = 0.1
SWAPPED = 0.3  # fraction of a row's numbers that are those of other rows
TABLE_STEPS = 200  # of pre-training on rows of a table
LEAST_ROWS = 32  # in a batch


def random_views(
    images: Tensor, generator: torch.Generator, *, crop: float, flip: bool
) -> Tensor:
    """One random view of each image, (B, C, H, W) → same: crop, resize, optional flip,
    colour jitter.

    Augmentations work on whole batches, with independent random parameters for every
    image.
    """
    cropped = random_resized_crop(images, generator, crop=crop, flip=flip)
    return jitter(cropped, generator)


def random_resized_crop(
    images: Tensor, generator: torch.Generator, *, crop: float, flip: bool
) -> Tensor:
    """A crop of area `crop`..1 and aspect ratio 3/4..4/3, resized bilinearly. With
    `flip`, half of them mirrored.
    """
    size = len(images)
    area = _uniform(size, crop, 1.0, generator)
    aspect = _uniform(size, math.log(3 / 4), math.log(4 / 3), generator).exp()
    width = (area * aspect).sqrt().clamp(max=1.0)
    height = (area / aspect).sqrt().clamp(max=1.0)
    left = _uniform(size, -1.0, 1.0, generator) * (1 - width)
    top = _uniform(size, -1.0, 1.0, generator) * (1 - height)
    mirror = torch.ones(size)
    if flip:
        mirror = 1.0 - 2.0 * (torch.rand(size, generator=generator) < 0.5)
    zero = torch.zeros(size)
    x_row = torch.stack([width * mirror, zero, left], 1)
    y_row = torch.stack([zero, height, top], 1)
    theta = torch.stack([x_row, y_row], 1)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(
        images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )


def jitter(
    images: Tensor,
    generator: torch.Generator,
    *,
    strength: float = 0.4,
    probability: float = 0.8,
    grey: float = 0.2,
) -> Tensor:
    """Brightness and contrast with `probability`, for colour images saturation and hue,
    greyscale with `grey`.

    Colour is one 3×3 matrix per image: hue is a rotation about the grey axis.
    """
    size, channels = images.shape[:2]
    apply = (torch.rand(size, generator=generator) < probability).float()
    scale = _uniform(size, -strength, strength, generator) * apply
    shift = _uniform(size, -strength, strength, generator) * apply
    if channels == 3:
        saturation = 1 + _uniform(size, -strength, strength, generator) * apply
        becomes_grey = torch.rand(size, generator=generator) < grey
        saturation = torch.where(becomes_grey, torch.zeros(size), saturation)
        angle = _uniform(size, -0.1, 0.1, generator) * (2 * math.pi) * apply
        luma = torch.tensor(_LUMA).expand(3, 3)
        colour = luma + saturation[:, None, None] * (_rotation(angle) - luma)
        images = torch.einsum("bij,bjhw->bihw", colour, images)
    centre = images.mean(dim=(1, 2, 3), keepdim=True)
    contrast = (1 + scale)[:, None, None, None]
    brightness = shift[:, None, None, None]
    return (images - centre) * contrast + centre + brightness


def _rotation(angle: Tensor) -> Tensor:
    """Rotations of colour space about the grey axis, (B,) → (B, 3, 3) (Rodrigues'
    formula).
    """
    axis = 1 / math.sqrt(3)
    cross = axis * torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    cosine = angle.cos()[:, None, None]
    sine = angle.sin()[:, None, None]
    return cosine * torch.eye(3) + sine * cross + (1 - cosine) / 3


def _uniform(size: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(size, generator=generator)


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """The NT-Xent loss of two views (B, D) each: cosine similarity, each view against
    all other 2B − 1.
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = views @ views.T / temperature
    similarity.fill_diagonal_(-torch.inf)
    size = len(first)
    partner = torch.arange(2 * size, device=similarity.device).roll(size)
    return F.cross_entropy(similarity, partner)


class SimCLR(SelfSupervisedTask):
    """Contrast two random views of each image with all others in the batch."""

    views = 2

    def __init__(
        self,
        extractor: nn.Module,
        width: int,
        aux: Records,
        config: PretrainConfig,
        seed: int,
    ) -> None:
        if not is_image(aux.x):
            raise ValueError(
                "pre-training needs auxiliary images (uint8, N×H×W×C) or text, not "
                f"{aux.x.dtype} of shape {aux.x.shape}: save images of 0 to 255 as "
                "x.astype(np.uint8), in the private data as well. For other data, set "
                "pretrain.epochs = 0, or use a method without +P."
            )
        with seeded_torch(derive_seed(seed, "projection")):
            projection = nn.Sequential(
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Linear(width, config.projection_dim),
            )
        super().__init__(extractor, projection, aux, config, seed)

    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        """Compute the gradient in one pass, or with `micro_batch_size` by gradient
        caching (Gao et al. 2021).

        The contrast is still over the whole batch: a first pass computes all
        projections and the gradient of the loss with respect to them, a second
        backpropagates it part by part. BatchNorm sees the parts.
        """
        views = self.compute.put(torch.cat(self._views(rows, generator)))
        views = views.to(memory_format=torch.channels_last)
        size = self.config.micro_batch_size or len(views)
        parts = views.tensor_split(-(-len(views) // size))
        if len(parts) == 1:
            loss = self._loss(self._project(views, seed))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()
        seeds = [derive_seed(seed, number) for number in range(len(parts))]
        with torch.no_grad():
            projected = torch.cat(list(map(self._project, parts, seeds)))
        loss = self._loss(projected.requires_grad_())
        loss.backward()  # type: ignore[no-untyped-call]
        assert projected.grad is not None
        gradients = torch.split(projected.grad, list(map(len, parts)))
        for micro, gradient, its_seed in zip(parts, gradients, seeds, strict=True):
            self._project(micro, its_seed).backward(gradient)  # type: ignore[no-untyped-call]
        return loss.item()

    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        views = map(self.compute.put, self._views(rows, generator))
        first, second = [self.extractor(view).float().cpu() for view in views]
        return feature_quality(first, second)

    def _views(self, rows: Indices, generator: torch.Generator) -> list[Tensor]:
        images = self.aux.tensor(rows)
        crop = self.config.min_crop_area
        flip = self.config.flip
        return [random_views(images, generator, crop=crop, flip=flip) for _ in range(2)]

    def _project(self, views: Tensor, seed: int) -> Tensor:
        with seeded_torch(seed):
            return forward(self.model, views)

    def _loss(self, projected: Tensor) -> Tensor:
        first, second = projected.chunk(2)
        return nt_xent(first, second, self.config.temperature)


class RowHead(nn.Module):
    """(B, width) → (B, projected + numbers): a projection to contrast, and the row as
    it was.
    """

    def __init__(self, width: int, projected: int, hidden: int, numbers: int) -> None:
        super().__init__()
        self.projection = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projected)
        )
        self.decoder = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, numbers)
        )

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([self.projection(features), self.decoder(features)], dim=1)


class CorruptedRows(SelfSupervisedTask):
    """Two views of each row of a table, in which some numbers are those of other rows:
    contrast them with all others in the batch, and restore the row.

    Batches are small enough for `TABLE_STEPS` steps in all.
    """

    views = 2

    def __init__(
        self,
        extractor: nn.Module,
        width: int,
        aux: Records,
        config: PretrainConfig,
        seed: int,
    ) -> None:
        if not isinstance(extractor, TableMap) or not is_table(aux.x):
            raise ValueError(
                f"Cannot pre-train {type(extractor).__name__} on {aux.x.dtype} of shape "
                f"{aux.x.shape}: 'tabular' is for rows of numbers. For images choose "
                "'cnn', for texts 'bert' or 'encoder'."
            )
        extractor.columns.fit(aux.gather())
        self.columns = extractor.columns
        self.projected = config.projection_dim
        with seeded_torch(derive_seed(seed, "rows")):
            head = RowHead(width, self.projected, 2 * width, aux.x.shape[1])
        most = max(LEAST_ROWS, len(aux) * config.epochs // TABLE_STEPS)
        batches_of_rows = replace(config, batch_size=min(config.batch_size, most))
        super().__init__(extractor, head, aux, batches_of_rows, seed)

    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        original = self.aux.tensor(rows)
        both = torch.cat(self._views(original, generator))
        with seeded_torch(seed):
            output = forward(self.model, both)
        projected = output[:, : self.projected]
        restored = output[:, self.projected :]
        with torch.no_grad():
            wanted = self.columns(self.compute.put(original))
        first, second = projected.chunk(2)
        contrast = nt_xent(first, second, self.config.temperature)
        loss = contrast + F.mse_loss(restored, torch.cat([wanted, wanted]))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        views = map(self.compute.put, self._views(self.aux.tensor(rows), generator))
        first, second = [self.extractor(view).float().cpu() for view in views]
        return feature_quality(first, second)

    def _views(self, rows: Tensor, generator: torch.Generator) -> list[Tensor]:
        return [corrupted(rows, generator) for _ in range(2)]


def corrupted(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Rows in which the share `SWAPPED` of numbers are those of other rows, (B, H) →
    same.
    """
    swapped = torch.rand(rows.shape, generator=generator) < SWAPPED
    others = torch.randint(len(rows), rows.shape, generator=generator)
    return torch.where(swapped, rows.gather(0, others), rows)


def mask_tokens(
    ids: Tensor,
    special: Tensor,
    mask_id: int,
    vocabulary: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """(masked ids, which tokens to predict), both (B, L). Special tokens are never
    selected.
    """
    selected = (torch.rand(ids.shape, generator=generator) < MASKED) & ~special
    draw = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(vocabulary, ids.shape, generator=generator)
    changed = torch.where(draw < KEPT + RANDOM, random_ids, mask_id)
    masked = torch.where(draw < KEPT, ids, changed)
    return torch.where(selected, masked, ids), selected


class MaskedLMHead(nn.Module):
    """BERT's prediction head. Its output layer is tied to the word embedding, which
    stays with the encoder.
    """

    def __init__(self, words: nn.Embedding) -> None:
        super().__init__()
        vocabulary, width = words.weight.shape
        self.transform = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)
        )
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        return F.linear(self.transform(hidden), words, self.bias)


class MaskedLanguageModel(SelfSupervisedTask):
    """Predict the masked tokens of a text."""

    def __init__(
        self,
        extractor: nn.Module,
        width: int,
        aux: Records,
        config: PretrainConfig,
        seed: int,
    ) -> None:
        if not isinstance(extractor, TextExtractor):
            raise ValueError(
                "Cannot pre-train: the auxiliary data are text, which "
                f"{type(extractor).__name__} cannot be pre-trained on. Choose the "
                "prototype 'bert' or 'encoder'."
            )
        self.text = extractor
        tokenizer = extractor.tokenizer
        self.special = torch.tensor(sorted(tokenizer.all_special_ids))
        self.mask_id = int(tokenizer.mask_token_id)
        self.vocabulary = len(tokenizer)
        with seeded_torch(derive_seed(seed, "guess")):
            self.lm_head = MaskedLMHead(extractor.encoder.get_input_embeddings())  # type: ignore[operator]
        super().__init__(extractor, self.lm_head, aux, config, seed)

    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        """Compute the gradient in one pass, or with `micro_batch_size` by gradient
        accumulation.
        """
        ids, mask = self.text.tokenize(self.aux.gather(rows))
        masked, selected = self._mask(ids, generator)
        count = max(1, int(selected.sum()))
        total = 0.0
        size = self.config.micro_batch_size or len(ids)
        for index, start in enumerate(range(0, len(ids), size)):
            micro = slice(start, start + size)
            predicted = selected[micro]
            if not predicted.any():
                continue
            embedding = self.text.encoder.get_input_embeddings().weight  # type: ignore[operator]
            with seeded_torch(derive_seed(seed, index)), self.compute.autocast():
                states = self.text.hidden_states(masked[micro], mask[micro])
                logits = self.lm_head(states[predicted], embedding).float()
            target = ids[micro][predicted]
            loss = F.cross_entropy(logits, target, reduction="sum") / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        """Two maskings of a text are its two views (`feature_quality`)."""
        ids, mask = self.text.tokenize(self.aux.gather(rows))
        views = []
        for _ in range(2):
            masked, _ = self._mask(ids, generator)
            views.append(self.text.pool(masked, mask).float().cpu())
        first, second = views
        return feature_quality(first, second)

    def _mask(self, ids: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`mask_tokens` on the CPU, where the generator is."""
        ids = ids.cpu()
        special = torch.isin(ids, self.special)
        masked, selected = mask_tokens(
            ids, special, self.mask_id, self.vocabulary, generator
        )
        return self.compute.put(masked), self.compute.put(selected)

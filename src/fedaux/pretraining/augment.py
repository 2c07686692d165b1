"""SimCLR's augmentations on whole batches, with independent random parameters for every image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)


def random_views(images: Tensor, generator: torch.Generator, *, crop: float, flip: bool) -> Tensor:
    """One random view of each image, (B, C, H, W) → same: crop, resize, optional flip, colour jitter."""
    return jitter(random_resized_crop(images, generator, crop=crop, flip=flip), generator)


def random_resized_crop(images: Tensor, generator: torch.Generator, *, crop: float, flip: bool) -> Tensor:
    """A crop of area `crop`..1 and aspect ratio 3/4..4/3, resized bilinearly; with `flip`, half of them mirrored."""
    size = len(images)
    area = _uniform(size, crop, 1.0, generator)
    aspect = _uniform(size, math.log(3 / 4), math.log(4 / 3), generator).exp()
    width, height = (area * aspect).sqrt().clamp(max=1.0), (area / aspect).sqrt().clamp(max=1.0)
    left, top = (_uniform(size, -1.0, 1.0, generator) * (1 - side) for side in (width, height))
    mirror = 1.0 - 2.0 * (torch.rand(size, generator=generator) < 0.5) if flip else torch.ones(size)
    zero = torch.zeros(size)
    theta = torch.stack([torch.stack([width * mirror, zero, left], 1), torch.stack([zero, height, top], 1)], 1)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def jitter(
    images: Tensor, generator: torch.Generator, *, strength: float = 0.4, probability: float = 0.8, grey: float = 0.2
) -> Tensor:
    """Brightness and contrast with `probability`; for colour images saturation and hue, greyscale with `grey`.

    Colour is one 3×3 matrix per image: hue is a rotation about the grey axis.
    """
    size, channels = images.shape[:2]
    apply = (torch.rand(size, generator=generator) < probability).float()
    scale, shift = (_uniform(size, -strength, strength, generator) * apply for _ in range(2))
    if channels == 3:
        saturation = 1 + _uniform(size, -strength, strength, generator) * apply
        saturation = torch.where(torch.rand(size, generator=generator) < grey, torch.zeros(size), saturation)
        angle = _uniform(size, -0.1, 0.1, generator) * (2 * math.pi) * apply
        luma = torch.tensor(_LUMA).expand(3, 3)
        colour = luma + saturation[:, None, None] * (_rotation(angle) - luma)
        images = torch.einsum("bij,bjhw->bihw", colour, images)
    centre = images.mean(dim=(1, 2, 3), keepdim=True)
    return (images - centre) * (1 + scale)[:, None, None, None] + centre + shift[:, None, None, None]


def _rotation(angle: Tensor) -> Tensor:
    """Rotations of colour space about the grey axis, (B,) → (B, 3, 3) (Rodrigues' formula)."""
    axis = 1 / math.sqrt(3)
    cross = axis * torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    cosine, sine = angle.cos()[:, None, None], angle.sin()[:, None, None]
    return cosine * torch.eye(3) + sine * cross + (1 - cosine) / 3


def _uniform(size: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(size, generator=generator)

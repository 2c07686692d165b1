"""Random views: each image has parameters of its own, drawn from the given generator and nothing else."""

import torch

from fedaux.pretraining.augment import jitter, random_resized_crop, random_views


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 64, channels: int = 3, side: int = 16) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=stream(9))


def test_flips_are_half_of_the_views_and_none_if_forbidden() -> None:
    ramp = torch.linspace(-1, 1, 16).expand(1000, 1, 16, 16)
    rising = [
        float(
            (random_resized_crop(ramp, stream(1), crop=0.2, flip=flip).diff(dim=-1).mean(dim=(1, 2, 3)) > 0)
            .float()
            .mean()
        )
        for flip in (False, True)
    ]
    assert rising[0] == 1.0
    assert 0.4 < rising[1] < 0.6


def test_crops_stay_inside_and_cover_the_stated_area() -> None:
    """On a ramp, the range of values in a crop is its width."""
    ramp = torch.linspace(0, 1, 32).expand(2000, 1, 32, 32)
    out = random_resized_crop(ramp, stream(2), crop=0.25, flip=False)
    assert 0.0 <= float(out.min()) <= float(out.max()) <= 1.0
    widths = out.amax(dim=(1, 2, 3)) - out.amin(dim=(1, 2, 3))
    assert 0.35 < float(widths.min()) < 0.5
    assert float(widths.max()) > 0.9


def test_every_image_gets_its_own_view() -> None:
    same = pictures(1).repeat(32, 1, 1, 1)
    out = random_views(same, stream(), crop=0.2, flip=True)
    assert len({one.numpy().tobytes() for one in out}) == 32


def test_views_follow_the_generator_alone() -> None:
    images = pictures()
    torch.manual_seed(0)
    first = random_views(images, stream(3), crop=0.2, flip=True)
    torch.manual_seed(1)
    assert torch.equal(first, random_views(images, stream(3), crop=0.2, flip=True))
    assert not torch.equal(first, random_views(images, stream(4), crop=0.2, flip=True))


def test_jitter_leaves_one_in_five_colour_images_untouched_and_one_in_five_grey() -> None:
    images = pictures(4000, side=4)
    out = jitter(images, stream(5))
    untouched = float((out - images).abs().amax(dim=(1, 2, 3)).lt(1e-5).float().mean())
    grey = float((out[:, 0] - out[:, 1]).abs().amax(dim=(1, 2)).lt(1e-5).float().mean())
    assert abs(untouched - 0.2 * 0.8) < 0.03
    assert abs(grey - 0.2) < 0.03


def test_jitter_of_grey_pictures_changes_brightness_and_contrast_only() -> None:
    images = pictures(500, channels=1)
    out = jitter(images, stream(6))
    for image, changed in zip(images, out, strict=True):
        slope = ((changed - changed.mean()) * (image - image.mean())).sum() / (image - image.mean()).square().sum()
        assert torch.allclose(changed - changed.mean(), slope * (image - image.mean()), atol=1e-4)
        assert 0.59 < float(slope) < 1.41

"""SimCLR: the contrastive loss against a naive version, random views, and pre-training
that learns and repeats.
"""

import numpy as np
import pytest
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PretrainConfig
from fedaux.data.records import Records
from fedaux.data.sources import open_source
from fedaux.models import build, flatten_state
from fedaux.models.inference import predict
from fedaux.models.pretraining.tasks import (
    SimCLR,
    jitter,
    nt_xent,
    random_resized_crop,
    random_views,
)
from fedaux.models.pretraining.trainer import pretrain


@pytest.mark.parametrize("size", [2, 5, 16])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_nt_xent_is_the_papers_sum(size: int, temperature: float) -> None:
    rng = np.random.default_rng(size)
    views = rng.normal(size=(2 * size, 7))
    naive = 0.0
    for i in range(2 * size):
        partner = (i + size) % (2 * size)
        similar = [
            np.exp(
                views[i]
                @ views[j]
                / np.linalg.norm(views[i])
                / np.linalg.norm(views[j])
                / temperature
            )
            for j in range(2 * size)
        ]
        naive -= np.log(
            similar[partner] / sum(similar[j] for j in range(2 * size) if j != i)
        ) / (2 * size)
    found = nt_xent(torch.tensor(views[:size]), torch.tensor(views[size:]), temperature)
    assert found.item() == pytest.approx(naive, rel=1e-9)


def trained(epochs: int, seed: int = 0) -> tuple[torch.nn.Module, list[float], Records]:
    aux = open_source("digits").train.take(np.arange(400)).unlabelled()
    model = build(PrototypeSpec.of("cnn", width=8, features=32), aux.shape, 10, seed=1)
    config = PretrainConfig(
        epochs=epochs, batch_size=100, min_crop_area=0.5, flip=False
    )
    curve = pretrain(SimCLR(model.features, model.width, aux, config, seed))
    return model.features, [epoch.loss for epoch in curve], aux


def test_pretraining_learns_and_repeats_exactly() -> None:
    first, losses, _ = trained(8)
    again, _, _ = trained(8)
    other, _, _ = trained(8, seed=1)
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.3
    assert np.array_equal(
        flatten_state(first)["parameters"], flatten_state(again)["parameters"]
    )
    assert not np.array_equal(
        flatten_state(first)["parameters"], flatten_state(other)["parameters"]
    )


def test_pretrained_features_tell_classes_apart_better_than_random_ones() -> None:
    """Nearest neighbour on digits that were not pre-trained on; labels serve this
    measurement only.
    """
    corpus = open_source("digits").train
    seen, asked = corpus.take(np.arange(400, 1000)), corpus.take(np.arange(1000, 1797))
    accuracies = []
    for epochs in (0, 20):
        extractor, _, _ = trained(epochs)
        known, new = (predict(extractor, part) for part in (seen, asked))
        known, new = (
            rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (known, new)
        )
        accuracies.append(
            float((seen.labels[(new @ known.T).argmax(axis=1)] == asked.labels).mean())
        )
    assert accuracies[1] > accuracies[0]


def test_data_that_are_no_images_are_refused_with_the_way_out() -> None:
    rows = Records(np.zeros((10, 4), np.float32))
    with pytest.raises(ValueError, match=r"pretrain\.epochs = 0"):
        SimCLR(torch.nn.Identity(), 4, rows, PretrainConfig(epochs=1), 0)


@pytest.mark.parametrize("chunk", [2, 40, 64])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(chunk: int) -> None:
    """Up to rounding: without BatchNorm, which sees parts, nothing depends on how a
    batch is cut.
    """
    aux = open_source("digits").train.take(np.arange(50)).unlabelled()
    found = []
    for parts in (0, chunk):
        model = build(
            PrototypeSpec.of("cnn", width=8, features=32, norm="group"),
            aux.shape,
            10,
            seed=1,
        )
        config = PretrainConfig(
            epochs=1,
            batch_size=50,
            micro_batch_size=parts,
            min_crop_area=0.5,
            flip=False,
        )
        task = SimCLR(model.features, model.width, aux, config, seed=5)
        loss = task.backward(np.arange(50), torch.Generator().manual_seed(3), seed=7)
        found.append(
            (
                loss,
                torch.cat(
                    [
                        p.grad.flatten()
                        for p in task.model.parameters()
                        if p.grad is not None
                    ]
                ),
            )
        )
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-6)
    assert found[0][1].abs().max() > 1e-4


def test_dropout_draws_the_same_in_both_passes_over_a_part() -> None:
    """Otherwise the gradient would belong to other projections than the loss."""
    aux = open_source("digits").train.take(np.arange(20)).unlabelled()
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 8)
    )
    task = SimCLR(
        network,
        8,
        aux,
        PretrainConfig(batch_size=20, micro_batch_size=10, min_crop_area=0.5),
        seed=5,
    )
    task.model.train()
    seen: list[torch.Tensor] = []
    network[1].register_forward_hook(lambda *found: seen.append(found[-1]))
    task.backward(np.arange(20), torch.Generator().manual_seed(3), seed=7)
    assert len(seen) == 8
    assert all(
        torch.equal(one, two) for one, two in zip(seen[:4], seen[4:], strict=True)
    )
    assert not torch.equal(seen[0], seen[1])


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 64, channels: int = 3, side: int = 16) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=stream(9))


def test_flips_are_half_of_the_views_and_none_if_forbidden() -> None:
    ramp = torch.linspace(-1, 1, 16).expand(1000, 1, 16, 16)
    plain, flipped = (
        random_resized_crop(ramp, stream(1), crop=0.2, flip=flip)
        for flip in (False, True)
    )
    assert (plain.diff(dim=-1).mean(dim=(1, 2, 3)) > 0).all()
    assert (
        0.4 < float((flipped.diff(dim=-1).mean(dim=(1, 2, 3)) > 0).float().mean()) < 0.6
    )


def test_crops_stay_inside_and_cover_the_stated_area() -> None:
    """On a ramp, the range of values in a crop is its width."""
    ramp = torch.linspace(0, 1, 32).expand(2000, 1, 32, 32)
    out = random_resized_crop(ramp, stream(2), crop=0.25, flip=False)
    assert 0.0 <= float(out.min()) <= float(out.max()) <= 1.0
    widths = out.amax(dim=(1, 2, 3)) - out.amin(dim=(1, 2, 3))
    assert 0.35 < float(widths.min()) < 0.5
    assert float(widths.max()) > 0.9


def test_every_image_gets_its_own_view_from_the_generator_alone() -> None:
    same = pictures(1).repeat(32, 1, 1, 1)
    first = random_views(same, stream(3), crop=0.2, flip=True)
    assert len({one.numpy().tobytes() for one in first}) == 32
    torch.manual_seed(1)
    assert torch.equal(first, random_views(same, stream(3), crop=0.2, flip=True))
    assert not torch.equal(first, random_views(same, stream(4), crop=0.2, flip=True))


def test_jitter_leaves_one_in_five_colour_images_untouched_and_one_in_five_grey() -> (
    None
):
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
        slope = ((changed - changed.mean()) * (image - image.mean())).sum() / (
            image - image.mean()
        ).square().sum()
        assert torch.allclose(
            changed - changed.mean(), slope * (image - image.mean()), atol=1e-4
        )
        assert 0.59 < float(slope) < 1.41

"""The networks: exact sizes, shapes, modes and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import Prototype, build, make_norm
from fedaux.models.layers import group_count

RGB = (3, 32, 32)
DEEP = ("resnet8", "mobilenetv2", "shufflenet")
SPECS = [PrototypeSpec.of(name, norm=norm) for name in DEEP for norm in ("batch", "group")]
SPECS += [PrototypeSpec.of(name, norm=norm) for name in ("mlp", "cnn") for norm in ("batch", "group", "none")]
every_network = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def rows(count: int, shape: tuple[int, ...] = RGB, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "encoder", "ten", "hundred", "width"),
    [
        ("resnet8", 4_898_112, 4_903_242, 4_949_412, 512),
        ("mobilenetv2", 597_768, 604_178, 661_868, 640),  # ten classes: the number of the study, difference 0
        ("shufflenet", 879_572, 887_582, 959_672, 800),  # ten classes: the number of the study, difference 0
    ],
)
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_parameter_counts_are_exact(name: str, encoder: int, ten: int, hundred: int, width: int, norm: str) -> None:
    model = build(PrototypeSpec.of(name, norm=norm), RGB, 10, seed=0)
    assert (size(model.features), size(model), model.width) == (encoder, ten, width)
    assert size(build(PrototypeSpec.of(name, norm=norm), RGB, 100, seed=0)) == hundred


def test_the_papers_stem_of_shufflenet_differs_by_less_than_a_thousandth() -> None:
    count = size(build(PrototypeSpec.of("shufflenet", stem=3), RGB, 10, seed=0))
    assert count == 888_158
    assert count / 887_582 - 1 < 1e-3


def test_width_scales_the_features() -> None:
    for name, width, features in (("resnet8", 16, 128), ("mobilenetv2", 0.25, 320), ("shufflenet", 48, 192)):
        model = build(PrototypeSpec.of(name, width=width), RGB, 10, seed=0).eval()
        assert model.features(rows(2)).shape == (2, features)
        assert model.width == features


@every_network
def test_f_is_head_of_features(spec: PrototypeSpec) -> None:
    model = build(spec, RGB, 7, seed=1).eval()
    x = rows(3)
    features = model.features(x)
    assert features.shape == (3, model.width)
    assert isinstance(model.head, nn.Linear)
    assert torch.equal(model(x), model.head(features))
    assert model(x).shape == (3, 7)


@every_network
def test_in_eval_mode_a_row_does_not_depend_on_its_neighbours(spec: PrototypeSpec) -> None:
    model = build(spec, RGB, 5, seed=2)
    model(rows(8, seed=1))  # BatchNorm has seen something
    model.eval()
    mine, others = rows(1, seed=2), rows(5, seed=3) * 9
    with torch.no_grad():
        torch.testing.assert_close(model(torch.cat([mine, others]))[:1], model(mine), rtol=1e-4, atol=1e-5)


@every_network
def test_a_forward_pass_changes_buffers_only_in_training_mode(spec: PrototypeSpec) -> None:
    model = build(spec, RGB, 5, seed=2)
    before = [buffer.clone() for buffer in model.buffers()]
    model.eval()(rows(4))
    assert all(map(torch.equal, before, model.buffers()))
    model.train()(rows(4))
    assert not any(map(torch.equal, before, model.buffers()))


@every_network
def test_only_batch_norm_has_buffers(spec: PrototypeSpec) -> None:
    has_buffers = any(True for _ in build(spec, RGB, 5, seed=2).buffers())
    assert has_buffers == (dict(spec.options)["norm"] == "batch")


@every_network
def test_the_gradient_reaches_every_parameter(spec: PrototypeSpec) -> None:
    model = build(spec, RGB, 5, seed=3).train()
    nn.functional.cross_entropy(model(rows(8)), torch.arange(8) % 5).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (13,)),
        ("mlp", (1, 8, 8)),
        ("mlp", (1, 28, 28)),
        ("cnn", (1, 8, 8)),
        ("cnn", (1, 28, 28)),
        ("cnn", (1, 1, 1)),
    ],
)
def test_small_networks_take_small_rows(name: str, shape: tuple[int, ...]) -> None:
    model = build(PrototypeSpec.of(name, features=20), shape, 3, seed=0)
    assert model.features(rows(4, shape)).shape == (4, 20)
    assert model(rows(4, shape)).shape == (4, 3)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_small_networks_learn_in_a_few_steps(name: str) -> None:
    model = build(PrototypeSpec(name), (1, 8, 8), 4, seed=0)
    x, y = rows(64, (1, 8, 8)), torch.arange(64) % 4
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1


def test_groups_divide_the_channels() -> None:
    assert [group_count(channels) for channels in (1, 8, 16, 44, 50, 64, 100, 512, 640, 4096)] == [
        1,
        1,
        1,
        2,
        2,
        4,
        5,
        32,
        32,
        32,
    ]
    for channels in range(1, 700):
        groups = group_count(channels)
        assert channels % groups == 0
        assert groups == 1 or (groups <= 32 and channels // groups >= 16)


def test_make_norm_knows_three_kinds() -> None:
    assert isinstance(make_norm("batch", 8), nn.BatchNorm2d)
    assert isinstance(make_norm("batch", 8, image=False), nn.BatchNorm1d)
    assert isinstance(make_norm("group", 8), nn.GroupNorm)
    assert isinstance(make_norm("none", 8), nn.Identity)
    with pytest.raises(ValueError, match=r"did you mean 'batch'.*choose from batch, group, none"):
        make_norm("bacth", 8)


def test_a_prototype_needs_an_extractor_with_a_width() -> None:
    with pytest.raises(ValueError, match="attribute `width`"):
        Prototype(nn.Flatten(), classes=3)

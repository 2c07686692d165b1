"""The networks of the house: the sizes of the study to the parameter, rows of any size,
groups that divide channels.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build, make_norm
from fedaux.models.networks import LEAST_DEVIATION, Columns, group_count
from fedaux.privacy.module_validation import validate_module
from helpers.networks import parameter_count


def rows(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def test_a_linear_network_has_the_numbers_as_they_are() -> None:
    network = build(PrototypeSpec("linear"), (2, 3), 4, seed=0)
    x = rows(5, (2, 3))
    assert parameter_count(network.features) == 0
    assert torch.equal(network.features(x), x.reshape(5, 6))
    validate_module(network)
    with pytest.raises(ValueError, match="'linear' expects rows of at least one"):
        build(PrototypeSpec("linear"), (), 4, seed=0)


def test_columns_are_scaled_as_public_rows_are() -> None:
    """One of few values, one that hardly varies, and one that does not vary."""
    rng = np.random.default_rng(0)
    public = np.stack(
        [rng.normal(1e5, 1e4, 500), np.arange(500) == 7, np.full(500, 3.0)], axis=1
    )
    columns = Columns(3)
    columns.fit(public)
    found = columns(torch.tensor(public, dtype=torch.float32)).numpy()
    assert abs(found[:, 0].mean()) < 1e-3
    assert abs(found[:, 0].std() - 1) < 1e-3
    assert found[7, 1] == pytest.approx(1 / LEAST_DEVIATION)
    assert not found[:, 2].any()
    assert columns(torch.tensor([[1e5, 0.0, 5.0]]))[0, 2] == 2


def test_cosines_are_as_near_as_public_rows_say() -> None:
    """Inner products are those of a Gaussian kernel, as wide as public rows are apart,
    whatever the scale of the columns.
    """
    rng = np.random.default_rng(0)
    public = rng.normal(size=(400, 5)) * [1, 10, 100, 1, 1]
    network = build(PrototypeSpec.of("cosine", features=20_000), (5,), 2, seed=0)
    network.features.fit(public)
    assert 2.5 < float(network.features.cosines.distance) < 3.5
    x = public[:20].astype(np.float32)
    found = network.features(torch.from_numpy(x)).numpy()
    scaled = network.features.columns(torch.from_numpy(x)).numpy()
    squared = np.square(scaled[:, None] - scaled).sum(axis=2)
    width = float(network.features.cosines.distance)
    assert np.allclose(found @ found.T, np.exp(-squared / 2 / width**2), atol=0.05)
    narrow = PrototypeSpec.of("cosine", features=20_000, bandwidth=0.01)
    apart = build(narrow, (5,), 2, seed=0).features
    apart.fit(public)
    far = apart(torch.from_numpy(x)).numpy()
    assert np.allclose(far @ far.T, np.eye(20), atol=0.05)


def test_no_record_has_long_cosines() -> None:
    network = build(PrototypeSpec.of("cosine", features=50), (3,), 2, seed=0)
    x = torch.tensor([[0.0, 0, 0], [1e9, -1e9, 1e9], [-1.0, 0.5, 3.0]])
    assert (network.features(x).norm(dim=1) <= 2**0.5 + 1e-6).all()
    assert parameter_count(network.features) == 0
    validate_module(network)


def test_public_rows_that_are_all_alike_leave_the_width() -> None:
    network = build(PrototypeSpec.of("cosine", features=50), (4,), 2, seed=0)
    network.features.fit(np.ones((10, 4)))
    assert float(network.features.cosines.distance) == 2.0


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(
    ("name", "features", "of_10", "of_100", "width"),
    [
        ("resnet8", 4_898_112, 4_903_242, 4_949_412, 512),
        ("mobilenetv2", 597_768, 604_178, 661_868, 640),
        ("shufflenet", 879_572, 887_582, 959_672, 800),
    ],
)
def test_parameter_counts_are_exact(
    name: str, features: int, of_10: int, of_100: int, width: int, norm: str
) -> None:
    ten, hundred = (
        build(PrototypeSpec.of(name, norm=norm), (3, 32, 32), classes, seed=0)
        for classes in (10, 100)
    )
    assert (parameter_count(ten.features), parameter_count(ten), ten.width) == (
        features,
        of_10,
        width,
    )
    assert parameter_count(hundred) == of_100


@pytest.mark.parametrize(
    ("spec", "shape", "features"),
    [
        (PrototypeSpec.of("resnet8", width=16), (3, 32, 32), 128),
        (PrototypeSpec.of("mobilenetv2", width=0.25), (3, 32, 32), 320),
        (PrototypeSpec.of("shufflenet", width=48), (3, 32, 32), 192),
        *(
            (PrototypeSpec.of("mlp", features=20), shape, 20)
            for shape in ((13,), (1, 8, 8), (1, 28, 28))
        ),
        *(
            (PrototypeSpec.of("cnn", features=20), shape, 20)
            for shape in ((1, 8, 8), (1, 28, 28), (1, 1, 1))
        ),
    ],
)
def test_options_decide_the_features_and_small_networks_take_small_rows(
    spec: PrototypeSpec, shape: tuple[int, ...], features: int
) -> None:
    model = build(spec, shape, 3, seed=0)
    assert model.width == features
    assert model.features(rows(4, shape)).shape == (4, features)
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
    known = {1: 1, 8: 1, 16: 1, 44: 2, 50: 2, 64: 4, 100: 5, 512: 32, 640: 32, 4096: 32}
    assert {channels: group_count(channels) for channels in known} == known
    for channels in range(1, 700):
        groups = group_count(channels)
        assert channels % groups == 0
        assert groups == 1 or (groups <= 32 and channels // groups >= 16)


def test_make_norm_knows_three_kinds() -> None:
    made = [
        make_norm("batch", 8),
        make_norm("batch", 8, image=False),
        make_norm("group", 8),
        make_norm("none", 8),
    ]
    assert [type(norm) for norm in made] == [
        nn.BatchNorm2d,
        nn.BatchNorm1d,
        nn.GroupNorm,
        nn.Identity,
    ]
    with pytest.raises(
        ValueError, match=r"did you mean 'batch'.*Choose from batch, group, none"
    ):
        make_norm("bacth", 8)

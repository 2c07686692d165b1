"""Names, options and seeds of prototypes; heads on standardised features, which are
folded away without a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import (
    Extractor,
    HeadFeatures,
    Prototype,
    available,
    build,
    flatten_state,
    linear_head,
    register,
)
from fedaux.models import registry as contract
from fedaux.models.registry import FLOOR, hidden_head, standardisation
from helpers.networks import IMAGES

every_network = pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: spec.label)


@pytest.fixture
def clean_registry() -> Iterator[None]:
    before = dict(contract._factories)
    yield
    contract._factories.clear()
    contract._factories.update(before)


def test_building_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    build(PrototypeSpec("cnn"), (1, 8, 8), 4, seed=5)
    with pytest.raises(ValueError, match="hidden"):
        build(PrototypeSpec.of("mlp", hidden=0), (4,), 4, seed=5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_seed_decides_the_bits_in_any_thread() -> None:
    def bits(seed: int) -> bytes:
        return flatten_state(build(PrototypeSpec("cnn"), (1, 8, 8), 4, seed))[
            "parameters"
        ].tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(bits, [1, 2] * 8)) == [bits(1), bits(2)] * 8
    assert bits(1) != bits(2)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        (
            PrototypeSpec("resnet9"),
            (3, 32, 32),
            r"did you mean 'resnet8'.*mobilenetv2.*module:function",
        ),
        (
            PrototypeSpec.of("resnet8", widht=3),
            (3, 32, 32),
            r"did you mean 'width'.*Choose from width, norm",
        ),
        (
            PrototypeSpec.of("resnet8", width="16"),
            (3, 32, 32),
            "width must be int, not str",
        ),
        (
            PrototypeSpec.of("resnet8", width=True),
            (3, 32, 32),
            "width must be int, not bool",
        ),
        (
            PrototypeSpec.of("resnet8", width=-1),
            (3, 32, 32),
            "width must be greater than 0",
        ),
        (
            PrototypeSpec.of("resnet8", norm="none"),
            (3, 32, 32),
            "Choose from batch, group",
        ),
        (PrototypeSpec.of("mlp", norm="layer"), (4,), "Choose from batch, group, none"),
        (PrototypeSpec.of("shufflenet", width=100), (3, 32, 32), "multiple of 8"),
        (
            PrototypeSpec("resnet8"),
            (13,),
            r"\(channels, height, width\), not rows of shape \(13,\)\. Use 'mlp'",
        ),
        (PrototypeSpec("cnn"), (8, 8), r"\(channels, height, width\)"),
        (PrototypeSpec("mlp"), (), "at least one number"),
        (
            PrototypeSpec("no_such_package:net"),
            (4,),
            "no module 'no_such_package'.*PYTHONPATH",
        ),
        (PrototypeSpec("fedaux.models.networks:mpl"), (4,), r"did you mean 'mlp'\?"),
    ],
    ids=lambda value: value.label if isinstance(value, PrototypeSpec) else "",
)
def test_mistakes_are_refused_with_the_way_out(
    spec: PrototypeSpec, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(spec, shape, 4, seed=0)


def test_a_prototype_needs_two_classes_and_an_extractor_with_a_width() -> None:
    with pytest.raises(ValueError, match="at least 2 classes"):
        build(PrototypeSpec("mlp"), (4,), 1, seed=0)
    with pytest.raises(ValueError, match="attribute `width`"):
        Prototype(nn.Flatten(), classes=3)


@pytest.mark.usefixtures("clean_registry")
def test_a_user_registers_a_network() -> None:
    @register("mine")
    def mine(shape: tuple[int, ...], depth: int = 1, scale: float = 1.0) -> nn.Module:
        return Extractor(
            nn.Flatten(),
            *(nn.Linear(shape[0], shape[0]) for _ in range(depth)),
            width=shape[0],
        )

    # an int is a fine float
    model = build(PrototypeSpec.of("mine", depth=3, scale=2), (6,), 4, seed=0)
    assert model(torch.zeros(2, 6)).shape == (2, 4)
    assert len(list(model.features.parameters())) == 6
    assert "mine" in available()
    register("mine")(mine)  # as when a notebook cell runs again
    with pytest.raises(ValueError, match="Take another name"):
        register("mlp")(mine)


def test_a_network_by_module_and_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_networks.py").write_text(
        "from torch import nn\n"
        "def net(shape, **options):\n"
        "    layer = nn.Linear(shape[0], options['features'])\n"
        "    layer.width = options['features']\n"
        "    return layer\n"
    )
    (tmp_path / "their_broken_networks.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = build(PrototypeSpec.of("their_networks:net", features=9), (6,), 4, seed=0)
    assert model.width == 9
    assert model(torch.zeros(2, 6)).shape == (2, 4)
    with pytest.raises(ModuleNotFoundError, match="a_package_nobody_has"):
        build(PrototypeSpec("their_broken_networks:net"), (6,), 4, seed=0)


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@every_network
def test_f_is_head_of_features(spec: PrototypeSpec) -> None:
    model = build(spec, (3, 8, 8), 7, seed=1).eval()
    x = rows(3)
    features = model.features(x)
    assert features.shape == (3, model.width)
    assert isinstance(model.head, nn.Linear)
    assert torch.equal(model(x), model.head(features))
    assert model(x).shape == (3, 7)


@every_network
def test_in_eval_mode_a_row_does_not_depend_on_its_neighbours(
    spec: PrototypeSpec,
) -> None:
    model = build(spec, (3, 8, 8), 5, seed=2)
    model(rows(8, seed=1))  # BatchNorm has seen something
    model.eval()
    mine, others = rows(1, seed=2), rows(5, seed=3) * 9
    with torch.no_grad():
        torch.testing.assert_close(
            model(torch.cat([mine, others]))[:1], model(mine), rtol=1e-4, atol=1e-5
        )


@every_network
def test_a_forward_pass_changes_buffers_only_in_training_mode(
    spec: PrototypeSpec,
) -> None:
    model = build(spec, (3, 8, 8), 5, seed=2)
    before = [buffer.clone() for buffer in model.buffers()]
    model.eval()(rows(4))
    assert all(map(torch.equal, before, model.buffers()))
    model.train()(rows(4))
    assert not any(map(torch.equal, before, model.buffers()))


@every_network
def test_the_gradient_reaches_every_parameter(spec: PrototypeSpec) -> None:
    model = build(spec, (3, 8, 8), 5, seed=3).train()
    nn.functional.cross_entropy(model(rows(8)), torch.arange(8) % 5).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


LOADING = """
import torch
from torch import nn
from fedaux.models import Extractor
def pretrained(shape):
    network = Extractor(nn.Linear(4, 3), nn.LayerNorm(3), width=3)
    network[0].weight.data = torch.arange(12.0).reshape(3, 4)
    return network
def random(shape): return Extractor(nn.Linear(4, 3), nn.LayerNorm(3), width=3)
"""


def test_weights_that_a_function_brings_along_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_loading.py").write_text(LOADING)
    monkeypatch.syspath_prepend(tmp_path)
    for name, carried in (
        ("my_loading:pretrained", ["0.weight"]),
        ("my_loading:random", []),
        ("mlp", []),
    ):
        spec = PrototypeSpec(name)
        assert (
            contract.carried_weights(spec, (4,), build(spec, (4,), 2, seed=1).features)
            == carried
        )


WIDTH, CLASSES = 6, 3
RNG = np.random.default_rng(0)
NEGATIVES = (
    RNG.normal(size=(500, WIDTH)) * [1, 10, 0.1, 2, 5, 1] + np.arange(WIDTH)
).astype(np.float32)
ROWS = torch.from_numpy((RNG.normal(size=(40, WIDTH)) * 3 + 1).astype(np.float32))


def features(random: int = 0, raw: bool = False) -> HeadFeatures:
    made = HeadFeatures(WIDTH, random)
    made.standardise({} if raw else standardisation(NEGATIVES))
    return made


def test_public_rows_get_mean_0_and_deviation_1() -> None:
    z = features()(torch.from_numpy(NEGATIVES)).numpy()
    assert np.allclose(z.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(z.std(axis=0), 1, atol=1e-4)


def test_a_feature_that_hardly_varies_in_public_is_not_blown_up() -> None:
    dead = NEGATIVES.copy()
    dead[:, 2] = 0
    root_mean_square = np.sqrt((dead.std(axis=0, dtype=np.float64) ** 2).mean())
    assert standardisation(dead)["deviation"][2] == pytest.approx(
        FLOOR * root_mean_square
    )
    assert (standardisation(np.ones((5, 3), np.float32))["deviation"] == 1).all()


def test_random_features_are_the_same_wherever_they_are_made() -> None:
    one, two = features(20)(ROWS), features(20)(ROWS)
    assert one.shape == (40, 20)
    assert torch.equal(one, two)
    assert (one >= 0).all()
    assert 0.2 < (one > 0).float().mean() < 0.8  # neither dead nor linear


@pytest.mark.parametrize("random", [0, 20])
@pytest.mark.parametrize("raw", [False, True])
def test_a_folded_head_needs_no_map(random: int, raw: bool) -> None:
    mapped, head = features(random, raw), nn.Linear(random or WIDTH, CLASSES)
    plain = mapped.fold(head)
    assert not any(isinstance(module, HeadFeatures) for module in plain.modules())
    assert torch.allclose(plain(ROWS), head(mapped(ROWS)), atol=1e-5)
    if random:
        hidden_head(WIDTH, random, CLASSES).load_state_dict(plain.state_dict())


@pytest.mark.parametrize("raw", [False, True])
def test_a_head_on_raw_features_is_unfolded(raw: bool) -> None:
    mapped, head = features(raw=raw), nn.Linear(WIDTH, CLASSES)
    weight, bias = mapped.unfold(head.weight, head.bias)
    assert torch.allclose(
        nn.functional.linear(mapped(ROWS), weight, bias), head(ROWS), atol=1e-4
    )
    with pytest.raises(ValueError, match="random features"):
        features(20).unfold(head.weight, head.bias)


def test_the_map_does_not_travel_with_the_head() -> None:
    assert {
        name: array.shape
        for name, array in flatten_state(linear_head(WIDTH, CLASSES, 20)).items()
    } == {"parameters": (CLASSES * 21,)}


@pytest.mark.parametrize(
    "change",
    [
        {"mean": np.zeros(WIDTH + 1, np.float32)},
        {"mean": np.full(WIDTH, np.nan, np.float32)},
        {"deviation": np.zeros(WIDTH, np.float32)},
        {"deviation": np.full(WIDTH, np.inf, np.float32)},
        {"more": np.zeros(WIDTH, np.float32)},
    ],
)
def test_statistics_that_make_no_sense_are_refused(
    change: dict[str, np.ndarray],
) -> None:
    with pytest.raises(ValueError, match="mean and deviation"):
        HeadFeatures(WIDTH).standardise({**standardisation(NEGATIVES), **change})

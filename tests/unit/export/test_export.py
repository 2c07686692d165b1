"""A finished run becomes folders that hold all that is needed: weights, a card for programs, a page for people."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import MissingPackageError
from fedaux.data.federated import open_data
from fedaux.export.export import export_model
from fedaux.export.model import Model
from fedaux.export.onnx_graph import OnnxError
from fedaux.models import build, load_state
from fedaux.server.evaluation import evaluate
from fedaux.server.result import FinishedRun
from fedaux.server.run_writer import RunWriter
from helpers.commands import fedaux, paragraph
from helpers.runs import finished_run, finished_state
from helpers.tiny import CNN, TINY_CONFIG
from helpers.tiny_text import publish_encoder, write_texts


def card_of(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


def test_the_exported_network_is_the_run_s_own_to_the_bit(result: FinishedRun, tmp_path: Path) -> None:
    folders = export_model(result.folder, tmp_path / "out")
    assert [folder.name for folder in folders] == ["mlp-0", "cnn-1"]
    test = open_data(result.state.config).test
    for spec, folder in zip(result.state.config.prototypes, folders, strict=True):
        own = build(spec, (1, 8, 8), 10, seed=5)
        load_state(own, result.state.weights[spec.label])
        with torch.inference_mode():
            wanted = own.eval()(test.tensor()).numpy()
        model = Model.from_pretrained(folder)
        assert np.array_equal(model.logits(test.gather()), wanted)
        accuracy = float((model.predict(test.gather()).argmax(axis=1) == test.labels).mean())
        assert accuracy == result.state.history[-1].accuracy[spec.label] == model.card["metrics"]["accuracy"]


def test_seeded_noise_covers_nothing(tmp_path: Path) -> None:
    state = finished_state(replace(TINY_CONFIG, privacy=PrivacyConfig(unsafe_seed=0)))
    accounts = {name: replace(account, epsilon=math.inf) for name, account in state.accounts.items()}
    RunWriter(tmp_path).save(replace(state, accounts=accounts))
    (folder,) = export_model(tmp_path)
    assert folder == tmp_path / "model" / "mlp-0"
    facts = card_of(folder)["privacy"]
    assert (facts["epsilon"], facts["covered"]) == (None, [])
    assert "known seed" in facts["not_covered"][0]
    assert "NOT PRIVATE" in (folder / "README.md").read_text()


def test_heads_alone_are_exported_with_their_frozen_network(tmp_path: Path) -> None:
    heads = finished_run(tmp_path, replace(TINY_CONFIG, head_only=True, prototypes=(CNN,), rounds=1))
    model = Model.from_pretrained(export_model(heads.folder)[0])
    test = open_data(TINY_CONFIG).test
    assert evaluate(model.network, test)[0] / len(test) == heads.accuracy
    assert model.card["weights"]["parameters"] == sum(p.numel() for p in build(CNN, (1, 8, 8), 10, 0).parameters())


def test_text_brings_its_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="text needs the extra fedaux[text]")
    encoder = publish_encoder(tmp_path / "tiny")
    table = {
        "rounds": 1,
        "head_only": True,
        "prototypes": [{"name": "encoder", "folder": str(encoder)}],
        "data": {"source": "csv", "path": str(write_texts(tmp_path / "a.csv", 90, seed=1)), "clients": 2, "alpha": 1.0},
        "aux": {"fraction": 0.4},
        "privacy": {"embedding_dim": 4},
    }
    config = Config.from_dict(table)
    done = finished_run(tmp_path / "run", config)
    with pytest.raises(OnnxError, match="text cannot be exported as ONNX"):
        export_model(done.folder, onnx=True)
    assert not (done.folder / "model").exists()
    (folder,) = export_model(done.folder)
    encoder.rename(tmp_path / "gone")  # as on another machine
    model = Model.from_pretrained(folder)
    test = open_data(config).test
    found = model.predict(list(test.x[test.rows])).argmax(axis=1)
    assert float((found == test.labels).mean()) == done.accuracy
    assert model.classes == ("money", "space", "sport")
    assert str(tmp_path) not in json.dumps(model.card["prototype"])


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_packages_for_onnx(
    result: FinishedRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    package: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError):
        export_model(result.folder, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()
    assert fedaux(monkeypatch, "export", result.folder, "--out", tmp_path / "out", "--onnx") == 6
    assert "pip install 'fedaux[onnx]'" in paragraph(capsys.readouterr().err)
    assert len(export_model(result.folder, tmp_path / "out")) == 2  # all else goes without them

"""A finished run becomes folders that hold all that is needed: weights, a card for programs, a page for people."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from fedaux import Config, __version__
from fedaux.algorithms.evaluation import evaluate
from fedaux.algorithms.results import Result
from fedaux.algorithms.run_state import RunState
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import PrivacyConfig
from fedaux.core.errors import MissingPackageError
from fedaux.core.messages import Account
from fedaux.core.results import PrivateTraining, RoundResult
from fedaux.data.federated import open_data
from fedaux.data.record_spec import RecordSpec
from fedaux.export.export import export_model
from fedaux.export.model import Model
from fedaux.export.onnx_graph import OnnxError, to_onnx
from fedaux.models import Prototype, build, load_state
from fedaux.privacy.ledger import Ledger
from helpers.runs import CNN, MLP, TINY, fedaux, paragraph, tiny_run
from helpers.tiny_text import publish_encoder, write_texts


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    torch.set_num_threads(1)
    return tiny_run(tmp_path_factory.mktemp("export"), replace(TINY, prototypes=(MLP, CNN)))


def card_of(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


def test_the_exported_network_is_the_run_s_own_to_the_bit(result: Result, tmp_path: Path) -> None:
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


def test_the_card_says_what_the_model_is(result: Result, tmp_path: Path) -> None:
    card = card_of(export_model(result.folder, tmp_path)[1])
    assert (card["format"], card["fedaux"]) == (1, __version__)
    assert card["prototype"] == {"name": "cnn", "options": {"features": 8, "width": 4}}
    assert card["record"]["kind"] == "image"
    assert (card["record"]["shape"], card["record"]["network_sees"]) == ([8, 8, 1], [1, 8, 8])
    assert card["record"]["scaling"].startswith("(x - 127.5) / 63.75")
    assert card["classes"] == [str(digit) for digit in range(10)]
    assert (card["method"], card["rounds"]) == ("fedaux", 2)
    assert card["metrics"]["accuracy_per_prototype"] == result.state.history[-1].accuracy
    assert card["metrics"]["test_records"] == 359
    assert card["data"]["clients"] == 3
    assert card["data"]["split"] == {"partition": "dirichlet", "alpha": 1.0}
    assert card["data"]["auxiliary"] == {"source": "held out of digits", "records": 100}
    assert Config.from_dict(card["config"]) == result.state.config
    assert card["privacy"]["statement"] == result.privacy
    assert "onnx" not in card


def test_the_privacy_of_a_card_is_that_of_the_statement(result: Result) -> None:
    facts = result.ledger.to_dict()
    assert facts["epsilon"] == pytest.approx(0.1, rel=1e-4)
    assert facts["epsilon"] <= 0.1
    assert facts["delta"] == 1e-5
    assert facts["neighbours"] == ["one record of a client exchanged for any other"]
    assert facts["covered"] == ["certainty scores"]
    assert facts["statement"].endswith(f"Not covered: {'; '.join(facts['not_covered'])}.")
    assert not facts["weights_covered"]

    history = [RoundResult(1, {}, {}, private_training=dict.fromkeys("ab", PrivateTraining(2.0, 0.5, 10)))]
    accounts = dict.fromkeys("ab", Account(1.2345, 1e-5, "replace-one", "record", 1))
    facts = Ledger.of({}, accounts, (), history).to_dict()  # every model was trained privately
    assert facts["covered"] == ["local models"]
    assert facts["weights_covered"]
    assert "(1.24, 1e-05)" in facts["statement"]
    assert facts["statement"].endswith(f"Not covered: {'; '.join(facts['not_covered'])}.")

    history.append(replace(history[0], round=2, unprotected_models=1))  # and then one was not
    facts = Ledger.of({}, accounts, (), history).to_dict()
    assert (facts["epsilon"], facts["delta"], facts["covered"]) == (None, None, [])
    assert not facts["weights_covered"]


def test_seeded_noise_covers_nothing(tmp_path: Path) -> None:
    seeded = tiny_run(tmp_path, replace(TINY, rounds=1, privacy=PrivacyConfig(unsafe_seed=0)))
    (folder,) = export_model(seeded.folder)
    assert folder == seeded.folder / "model" / "mlp-0"
    facts = card_of(folder)["privacy"]
    assert (facts["epsilon"], facts["covered"]) == (None, [])
    assert "known seed" in facts["not_covered"][0]
    assert "NOT PRIVATE" in (folder / "README.md").read_text()


def test_the_page_has_front_matter_as_hubs_read_it(result: Result, tmp_path: Path) -> None:
    page = (export_model(result.folder, tmp_path)[0] / "README.md").read_text()
    _, front, body = page.split("---\n", 2)
    table = yaml.safe_load(front)
    assert "license" not in table  # which is the user's to choose, and the page says so
    assert "Put `license:` into the lines at the top" in body
    assert table["pipeline_tag"] == "image-classification"
    assert "differential-privacy" not in table["tags"]  # the weights are not covered
    assert "carry no guarantee" in body
    (entry,) = table["model-index"]
    accuracy = result.state.history[-1].accuracy[MLP.label]
    assert entry["results"][0]["metrics"][0]["value"] == round(accuracy, 4)
    assert f"{100 * accuracy:.1f} % of the test records" in body
    assert result.privacy in body
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in body


def test_heads_alone_are_exported_with_their_frozen_network(tmp_path: Path) -> None:
    heads = tiny_run(tmp_path, replace(TINY, head_only=True, prototypes=(CNN,), rounds=1))
    model = Model.from_pretrained(export_model(heads.folder)[0])
    test = open_data(TINY).test
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
    done = tiny_run(tmp_path, config)
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


def test_onnx_gives_the_same_numbers_for_raw_images(result: Result, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX needs the extra fedaux[onnx]")
    images = open_data(TINY).test.gather(slice(0, 50))
    for folder in export_model(result.folder, tmp_path, onnx=True):
        session = runtime.InferenceSession(folder / "model.onnx")
        probabilities, logits = session.run(None, {"images": images})
        model = Model.from_pretrained(folder)
        assert probabilities == pytest.approx(model.predict(images), abs=1e-5)
        assert logits == pytest.approx(model.logits(images), abs=1e-4)
        told = model.card["onnx"]
        assert (told["input"], told["dtype"], told["shape"]) == ("images", "uint8", ["batch", 8, 8, 1])
        assert told["largest_difference"] < 1e-4
        assert "onnxruntime.InferenceSession" in (folder / "README.md").read_text()

    (folder, _) = export_model(result.folder, tmp_path)  # a graph of other weights must not stay
    assert not (folder / "model.onnx").exists()
    assert "onnx" not in card_of(folder)
    assert "onnxruntime" not in (folder / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet8", "mobilenetv2", "shufflenet"])
def test_every_image_network_can_be_written_as_onnx(name: str) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX needs the extra fedaux[onnx]")
    network = build(PrototypeSpec(name), (3, 32, 32), 10, seed=0)
    data, facts = to_onnx(network, RecordSpec("image", (32, 32, 3)))
    assert len(data) > 10**6
    assert facts["largest_difference"] < 1e-2


def test_onnx_of_numbers_and_of_what_cannot_be_followed() -> None:
    pytest.importorskip("onnxruntime", reason="ONNX needs the extra fedaux[onnx]")
    _, facts = to_onnx(build(PrototypeSpec("mlp"), (5,), 3, seed=0), RecordSpec("numbers", (5,)))
    assert (facts["input"], facts["dtype"], facts["shape"]) == ("rows", "float32", ["batch", 5])

    class Whimsical(nn.Module):
        width = 5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum().item() > 0 else -x

    with pytest.raises(OnnxError, match=r"this network cannot be written as ONNX .* Export without --onnx"):
        to_onnx(Prototype(Whimsical(), 3), RecordSpec("numbers", (5,)))

    class Fickle(nn.Module):
        """What a graph remembers of it is not what it does next."""

        width, calls = 5, 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

    with pytest.raises(OnnxError, match="the ONNX graph differs from the network"):
        to_onnx(Prototype(Fickle(), 3), RecordSpec("numbers", (5,)))


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_packages_for_onnx(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError):
        export_model(result.folder, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()
    assert fedaux(monkeypatch, "export", result.folder, "--out", tmp_path / "out", "--onnx") == 6
    assert "pip install 'fedaux[onnx]'" in paragraph(capsys.readouterr().err)
    assert len(export_model(result.folder, tmp_path / "out")) == 2  # all else goes without them


def test_the_command_says_where_and_what(
    result: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "export", result.folder) == 0
    said = paragraph(capsys.readouterr().out)
    for spec, name in ((MLP, "mlp-0"), (CNN, "cnn-1")):
        accuracy = result.state.history[-1].accuracy[spec.label]
        assert f"{result.folder / 'model' / name}: accuracy {accuracy:.3f} on 359 test records" in said
    assert f"Privacy. {result.privacy}" in said
    assert fedaux(monkeypatch, "export", result.folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)["models"]
    assert [Path(one["folder"]).name for one in found] == ["mlp-0", "cnn-1"]
    assert found[0]["files"] == ["README.md", "card.json", "model.safetensors"]
    assert 0.0999 < found[0]["privacy"]["epsilon"] <= 0.1
    assert fedaux(monkeypatch, "export", "--help") == 0
    assert re.search(r"\$ fedaux export runs/\S+ --out digits --onnx", paragraph(capsys.readouterr().out))


def test_no_run_an_unfinished_one_and_a_damaged_one(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "state.safetensors").write_bytes(b"damaged")
    state = RunState.load(result.folder)
    replace(state, config=replace(state.config, rounds=7)).save(tmp_path / "unfinished")
    expected = {
        "nowhere": "holds no run (state.safetensors is missing)",
        "damaged": "is damaged",
        "unfinished": "has finished 2 of 7 rounds; go on with `fedaux resume",
    }
    for name, message in expected.items():
        assert fedaux(monkeypatch, "export", tmp_path / name) == 5
        out, err = capsys.readouterr()
        assert message in paragraph(err)
        assert "Traceback" not in out + err
        assert not (tmp_path / name / "model").exists()
    assert fedaux(monkeypatch, "export") == 2

"""A finished run becomes folders that hold all that is needed: weights, a card for
programs, a page for people.
"""

import json
import math
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from fedaux import Config, __version__
from fedaux.config.sections import PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.data.federated import open_data
from fedaux.export.export import export_model
from fedaux.export.model import Model, privacy_rows
from fedaux.export.onnx_graph import OnnxError
from fedaux.models import build, load_state
from fedaux.models.inference import predict
from fedaux.privacy.ledger import Ledger, SumAssumption
from fedaux.server.result import FinishedRun
from fedaux.server.run_writer import RunWriter
from helpers.commands import fedaux, paragraph
from helpers.runs import finished_run, finished_state
from helpers.samples import release
from helpers.tiny import CNN, MLP, TINY_CONFIG
from helpers.tiny_text import publish_encoder, write_texts


def card_of(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


def test_the_exported_network_is_the_run_s_own_to_the_bit(
    result: FinishedRun, tmp_path: Path
) -> None:
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
        accuracy = float(
            (model.predict(test.gather()).argmax(axis=1) == test.labels).mean()
        )
        assert (
            accuracy
            == result.state.history[-1].accuracy[spec.label]
            == model.card["metrics"]["accuracy"]
        )


def test_the_card_says_what_the_model_is(result: FinishedRun, tmp_path: Path) -> None:
    card = card_of(export_model(result.folder, tmp_path)[1])
    assert (card["format"], card["fedaux"]) == (1, __version__)
    assert card["prototype"] == {"name": "cnn", "options": {"features": 8, "width": 4}}
    assert card["record"]["kind"] == "image"
    assert (card["record"]["shape"], card["record"]["network_sees"]) == (
        [8, 8, 1],
        [1, 8, 8],
    )
    assert card["record"]["scaling"].startswith("(x - 127.5) / 63.75")
    assert card["classes"] == [str(digit) for digit in range(10)]
    assert (card["method"], card["rounds"]) == ("fedaux", 2)
    assert (
        card["metrics"]["accuracy_per_prototype"] == result.state.history[-1].accuracy
    )
    assert card["metrics"]["test_records"] == 359
    assert {"balanced_accuracy", "macro_f1", "auc", "majority"} <= set(card["metrics"])
    assert set(card["metrics"]["recall"]["3"]) == {"records", "recall", "low", "high"}
    assert card["data"]["clients"] == 3
    assert card["data"]["split"] == {"partition": "dirichlet", "alpha": 1.0}
    assert card["data"]["auxiliary"] == {"source": "held out of digits", "records": 100}
    assert Config.from_dict(card["config"]) == result.state.config
    assert card["privacy"]["statement"] == result.statement
    assert "onnx" not in card


def test_the_page_has_front_matter_as_hubs_read_it(
    result: FinishedRun, tmp_path: Path
) -> None:
    folder = export_model(result.folder, tmp_path)[0]
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    table = yaml.safe_load(front)
    assert "license" not in table  # which is the user's to choose, and the page says so
    assert "Put `license:` into the lines at the top" in body
    assert table["pipeline_tag"] == "image-classification"
    assert "differential-privacy" not in table["tags"]  # the weights are not covered
    assert "carry no guarantee" in body
    (entry,) = table["model-index"]
    accuracy = result.state.history[-1].accuracy[MLP.label]
    assert entry["results"][0]["metrics"][0]["value"] == round(accuracy, 4)
    warning = card_of(folder)["metrics"]["warning"]  # its networks have learned nothing
    assert warning
    for words in (
        f"{100 * accuracy:.1f} % of the test records",
        result.statement,
        "0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
        "| balanced accuracy |",
        "| always the commonest class |",
        "\n| 3 | ",
        f"**Warning: {warning}.**",
    ):
        assert words in body


def test_seeded_noise_covers_nothing(tmp_path: Path) -> None:
    state = finished_state(replace(TINY_CONFIG, privacy=PrivacyConfig(unsafe_seed=0)))
    accounts = {
        name: replace(account, epsilon=math.inf)
        for name, account in state.accounts.items()
    }
    RunWriter(tmp_path).save(state.with_accounts(accounts, accounts))
    (folder,) = export_model(tmp_path)
    assert folder == tmp_path / "model" / "mlp-0"
    facts = card_of(folder)["privacy"]
    assert (facts["epsilon"], facts["covered"]) == (None, [])
    assert "known seed" in facts["not_covered"][0]
    assert "NOT PRIVATE" in (folder / "README.md").read_text()


def test_heads_alone_are_exported_with_their_frozen_network(tmp_path: Path) -> None:
    heads = finished_run(
        tmp_path, replace(TINY_CONFIG, head_only=True, prototypes=(CNN,), rounds=1)
    )
    model = Model.from_pretrained(export_model(heads.folder)[0])
    test = open_data(TINY_CONFIG).test
    assert (
        predict(model.network, test).argmax(axis=1) == test.labels
    ).mean() == heads.accuracy
    assert model.card["weights"]["parameters"] == sum(
        p.numel() for p in build(CNN, (1, 8, 8), 10, 0).parameters()
    )


def test_text_brings_its_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The texts' column is that of training, unless another is named."""
    pytest.importorskip("transformers", reason="text needs the extra fedaux[text]")
    encoder = publish_encoder(tmp_path / "tiny")
    texts = write_texts(tmp_path / "a.csv", 90, seed=1)
    texts.write_text(texts.read_text().replace("label,text", "label,body"))
    data = {
        "source": "csv",
        "path": str(texts),
        "clients": 2,
        "alpha": 1.0,
        "options": {"text": "body"},
    }
    table = {
        "rounds": 1,
        "head_only": True,
        "prototypes": [{"name": "encoder", "folder": str(encoder)}],
        "data": data,
        "aux": {"fraction": 0.4},
        "privacy": {"embedding_dim": 4},
    }
    config = Config.from_dict(table)
    done = finished_run(tmp_path / "run", config)
    with pytest.raises(OnnxError, match="text cannot be exported"):
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

    told = ["the rocket and the moon", "the league, the cup", "oil price"]
    (tmp_path / "t.csv").write_text("body\n" + "".join(f'"{text}"\n' for text in told))
    (tmp_path / "t.jsonl").write_text(
        "".join(json.dumps({"words": text}) + "\n" for text in told)
    )
    for name, words in (("t.csv", []), ("t.jsonl", ["--column", "words"])):
        assert (
            fedaux(
                monkeypatch,
                "predict",
                folder,
                tmp_path / name,
                "--top",
                1,
                "--json",
                *words,
            )
            == 0
        )
        given = json.loads(capsys.readouterr().out)["predictions"]
        assert [one["top"][0]["probability"] for one in given] == pytest.approx(
            model.predict(told).max(axis=1), 1e-5
        )
    np.save(tmp_path / "x.npy", np.zeros(3))
    (tmp_path / "damaged.jsonl").write_text("{")
    for name, message in (
        ("t.jsonl", "nothing in body, there is words"),
        ("damaged.jsonl", "damaged.jsonl: "),
        ("x.npy", "this model takes a list of texts. Give .csv"),
    ):
        assert fedaux(monkeypatch, "predict", folder, tmp_path / name) == 4
        assert message in paragraph(capsys.readouterr().err)


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_packages_for_onnx(
    result: FinishedRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    package: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert (
        fedaux(
            monkeypatch, "export", result.folder, "--out", tmp_path / "out", "--onnx"
        )
        == 6
    )
    assert "pip install -e '.[onnx]'" in paragraph(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
    # all else goes without them
    assert len(export_model(result.folder, tmp_path / "out")) == 2


def page_of(folder: Path, method: str) -> str:
    config = replace(TINY_CONFIG, method=method)
    run = finished_run(folder / method, config).folder
    (model,) = export_model(run, folder / f"{method}-model")
    return (model / "README.md").read_text(encoding="utf-8")


def test_privacy_is_a_table_of_what_was_sent(tmp_path: Path) -> None:
    page = page_of(tmp_path, "fedaux")
    assert "| what a client sends | protected by | ε | δ | unit | adjacency |" in page
    assert "| certainty scores | noise | 0.1 | 1e-05 | record | replace-one |" in page
    assert "| local models | nothing | – | – | – | – |" in page
    assert page.count("no record influences it") == 1
    plain = page_of(tmp_path, "fedavg")
    assert "| local models | nothing |" in plain
    assert "noise |" not in plain  # nothing was released under any
    assert "| local models |" not in page_of(tmp_path, "ridge")


def test_in_secure_sums_the_table_says_which_sum_has_noise() -> None:
    account = Account(0.5, 1e-5, "replace-one", "person", 1)
    budget = ("0.5", "1e-05", "person", "replace-one")

    def sums_of(models: bool) -> list[tuple[str, ...]]:
        ledger = Ledger.of(
            {"a": release("a")},
            {"a": account},
            (),
            (),
            models=models,
            secure=SumAssumption(6, 5, 1),
        )
        rows = privacy_rows(ledger.to_dict())
        return [row for row in rows if "secure sum" in row[1]]

    noisy = ("noisy sums", "noise, in a secure sum", *budget)
    assert sums_of(models=False) == [noisy]
    first, second = sums_of(models=True)
    assert first == noisy
    assert "models" in second[0]
    assert second[1:] == ("a secure sum, without noise", "–", "–", "–", "–")


def test_a_page_has_its_use_date_version_and_citation(tmp_path: Path) -> None:
    page = page_of(tmp_path, "fedaux")
    day = card_of(tmp_path / "fedaux-model" / "mlp-0")["created"]
    assert date.fromisoformat(day) <= date.today()
    assert f"| exported on | {day} |" in page
    assert f"| made with | fedaux {__version__} |" in page
    use = page[page.index("## Intended use") : page.index("## Use")]
    assert "Out of scope:" in use
    # the models of FedAUX are not covered
    assert "- Publication" in use
    assert "does not know the licences" in page[page.index("## Licence") :]
    root = Path(__file__).resolve().parents[3]
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = citation["references"]
    for title in (citation["title"], paper["title"]):
        plain = page.replace("{", "").replace("}", "")
        assert f"title   = {title}," in plain
    assert "sattler2021" not in page_of(tmp_path, "fedavg")

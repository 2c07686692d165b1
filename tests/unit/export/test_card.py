"""What a model is, for programs and for people."""

import json
from pathlib import Path

import yaml

from fedaux import Config, __version__
from fedaux.export.export import export_model
from fedaux.server.result import FinishedRun
from helpers.tiny import MLP


def card_of(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


def test_the_card_says_what_the_model_is(result: FinishedRun, tmp_path: Path) -> None:
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
    assert card["privacy"]["statement"] == result.statement
    assert "onnx" not in card


def test_the_page_has_front_matter_as_hubs_read_it(result: FinishedRun, tmp_path: Path) -> None:
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
    assert result.statement in body
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in body


def test_figures_stand_beside_their_baseline(result: FinishedRun, tmp_path: Path) -> None:
    folder = export_model(result.folder, tmp_path)[0]
    metrics = card_of(folder)["metrics"]
    assert {"balanced_accuracy", "macro_f1", "auc", "majority"} <= set(metrics)
    assert set(metrics["recall"]["3"]) == {"records", "recall", "low", "high"}
    page = (folder / "README.md").read_text()
    assert "| balanced accuracy |" in page
    assert "| always the commonest class |" in page
    assert "\n| 3 | " in page


def test_a_collapsed_model_says_so(result: FinishedRun, tmp_path: Path) -> None:
    """Its networks have learned nothing."""
    folder = export_model(result.folder, tmp_path)[0]
    assert card_of(folder)["metrics"]["warning"]
    assert f"**Warning: {card_of(folder)['metrics']['warning']}.**" in (folder / "README.md").read_text()

"""Tables and the page of an exported model on labelled records."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from fedaux.core.metrics import Evaluation
from fedaux.export.evaluation import ModelEvaluation
from fedaux.report.evaluation_page import figure_rows, recall_rows, site_rows, write_evaluation_page
from helpers.pages import Page

GOOD = Evaluation(np.array([[30, 10], [5, 55]]), 0.9)
WRONG = (("<b>1.png</b>", "well", "ill"),)


def test_every_site_has_a_row_and_every_class_an_interval() -> None:
    found = ModelEvaluation(GOOD, {"north": GOOD})
    assert figure_rows(GOOD)[:2] == [("accuracy", "85.0"), ("balanced accuracy", "83.3")]
    assert ("always the commonest class", "60.0") in figure_rows(GOOD)
    assert site_rows(found.sites) == [("north", "100", "85.0", "83.3", "60.0")]
    model = SimpleNamespace(classes=("well", "ill"))
    assert recall_rows(found, model)[0][:3] == ("well", "40", "75.0")  # type: ignore[arg-type]


def test_the_page_shows_figures_confusion_and_wrong_answers(tmp_path: Path) -> None:
    found = ModelEvaluation(GOOD, {"north": GOOD}, (Path("bad.png"),), WRONG)
    text = write_evaluation_page(tmp_path / "page.html", "cnn on scans", ("well", "ill"), found).read_text()
    page = Page(text)
    assert page.sections == ["figures", "classes", "sites", "wrong"]
    assert page.loads == []
    assert "<b>83.3 %</b>" in text
    assert "files could not be read" in text
    assert "&lt;b&gt;1.png" in text
    assert 'role="alert"' not in text


def test_a_collapsed_model_is_a_warning(tmp_path: Path) -> None:
    found = ModelEvaluation(Evaluation(np.array([[0, 40], [0, 60]])), {})
    text = write_evaluation_page(tmp_path / "page.html", "cnn", ("well", "ill"), found).read_text()
    assert "does not beat always answering" in text[: text.index("<nav>")]

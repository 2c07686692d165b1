"""Tables and pages about a model."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.core.binary_metrics import Calibration
from fedaux.core.metrics import Evaluation
from fedaux.export.evaluation import ModelEvaluation
from fedaux.report.model_pages import (
    class_figures,
    figure_rows,
    recall_rows,
    site_rows,
    write_evaluation_page,
    write_pretraining_page,
)
from helpers.pages import Page

CLASSES = ("well", "ill")
GOOD = Evaluation(np.array([[30, 10], [5, 55]]), 0.9)


def test_figures_have_a_baseline_and_classes_an_interval() -> None:
    assert figure_rows(GOOD)[:2] == [
        ("accuracy", "85.0"),
        ("balanced accuracy", "83.3"),
    ]
    assert ("always the commonest class", "60.0") in figure_rows(GOOD)
    assert site_rows({"north": GOOD}) == [
        ("north", "100", "85.0", "83.3", "90.0", "60.0")
    ]
    unknown = site_rows({"south": replace(GOOD, auc=None)})
    assert unknown == [("south", "100", "85.0", "83.3", "–", "60.0")]


def test_calibration_is_drawn_with_its_error() -> None:
    curve = Calibration.from_rows([[30, 0.2, 0.1], [10, 0.7, 0.9]])
    figures = class_figures(replace(GOOD, calibration=curve), ("healthy", "ill"))
    found = [figure for figure in figures if figure.file == "calibration"]
    assert len(found) == 1
    assert "probability of 'ill'" in found[0].caption
    assert "10 to 30 test records" in found[0].caption
    assert "difference is 12.5 %" in found[0].caption
    assert "20.0 %" in found[0].chart.svg().standalone()
    assert all(figure.file != "calibration" for figure in class_figures(GOOD, "ab"))
    assert recall_rows(GOOD, CLASSES)[0][:3] == ("well", "40", "75.0")
    # Wilson's interval of 30 of 40
    assert "75.0 % (60–86)" in class_figures(GOOD, CLASSES)[0].chart.svg().inline()
    untested = Evaluation(np.array([[30, 10], [0, 0]]))
    assert "not tested" in class_figures(untested, CLASSES)[0].chart.svg().inline()
    assert len(recall_rows(untested, CLASSES)) == 1


def test_the_page_shows_figures_confusion_and_wrong_answers(tmp_path: Path) -> None:
    found = ModelEvaluation(
        GOOD, {"north": GOOD}, (Path("bad.png"),), (("<b>1.png</b>", "well", "ill"),)
    )
    text = write_evaluation_page(
        tmp_path / "page.html", "cnn on scans", CLASSES, found
    ).read_text()
    page = Page(text)
    assert page.sections == ["figures", "classes", "sites", "wrong"]
    assert page.loads == []
    assert "<b>83.3 %</b>" in text
    assert "files could not be read" in text
    assert "&lt;b&gt;1.png" in text
    assert 'role="alert"' not in text
    collapsed = ModelEvaluation(Evaluation(np.array([[0, 40], [0, 60]])), {})
    text = write_evaluation_page(
        tmp_path / "page.html", "cnn", CLASSES, collapsed
    ).read_text()
    assert "does not beat always answering" in text[: text.index("<nav>")]


def test_every_measure_of_pretraining_has_its_chart_and_its_last_figure(
    tmp_path: Path,
) -> None:
    curve = [
        {
            "epoch": i,
            "loss": 3.0 - i,
            "quality": {"alignment": 0.5 * i, "uniformity": -1.5 * i, "rank": 4.25 * i},
        }
        for i in (1, 2)
    ]
    text = write_pretraining_page(
        tmp_path / "page.html", "cnn(width=8)", curve
    ).read_text()
    assert Page(text).sections == ["loss", "alignment", "uniformity", "rank"]
    assert text.count('<polyline class="curve') == 2 * 4  # wide and narrow
    assert all(f"<b>{figure}</b>" in text for figure in ("1", "-3", "8.5"))
    assert "after 2 epochs" in text

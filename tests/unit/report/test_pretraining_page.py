"""The page of pre-training has a chart for each measure, and its last figures."""

from pathlib import Path

from fedaux.report.pretraining_page import write_pretraining_page
from helpers.pages import Page


def test_every_measure_has_its_chart_and_its_last_figure(tmp_path: Path) -> None:
    curve = [
        {"epoch": i, "loss": 3.0 - i, "quality": {"alignment": 0.5 * i, "uniformity": -1.5 * i, "rank": 4.25 * i}}
        for i in (1, 2)
    ]
    path = write_pretraining_page(tmp_path / "page.html", "cnn(width=8)", curve)
    text = path.read_text()
    assert Page(text).sections == ["loss", "alignment", "uniformity", "rank"]
    assert text.count('<polyline class="curve') == 2 * 4  # wide and narrow
    for figure in ("1", "-3", "8.5"):
        assert f"<b>{figure}</b>" in text
    assert "after 2 epochs" in text
    assert "cnn(width=8)" in text

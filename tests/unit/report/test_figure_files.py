"""The same shapes in the same colours as SVG, PDF and PNG."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.report.figure_files import FigureError, save_chart
from fedaux.report.line_chart import Line, line_chart
from fedaux.report.shapes import Part, bars, bubbles, heat, stack
from fedaux.report.svg import read_colours

LINES = [
    Line("FedAUX, ε = 1", [0.1, 0.8], "hero", spread=[0.1, 0.1]),
    Line("$5", [0.1, 0.3], "t0"),
    Line("b", [0.1, 0.3], "t3 m1"),
]
CHARTS = (
    line_chart(LINES, "round", "test accuracy", top=1.0, percent=True, behind=[[0.2, 0.2]]),
    bubbles(np.array([[3, 1]]), ["a"], ["cat", "a longer name"]),
    bars([("a", 0.5, "50 %")]),
    heat(np.array([[0.9, 0.0]]), ["a"], ["a long name", "b"], "true", "predicted"),
    stack([Part("a", 1, "t4")], "1 s"),
)


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


@pytest.mark.parametrize("chart", CHARTS)
def test_a_pdf_is_a_pdf_with_its_fonts(chart: object, tmp_path: Path) -> None:
    save_chart(chart, tmp_path / "new" / "a.pdf", "A title")  # type: ignore[arg-type]
    data = (tmp_path / "new" / "a.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert b"/FontFile2" in data  # embedded TrueType
    save_chart(chart, tmp_path / "b.pdf")  # type: ignore[arg-type]
    assert (tmp_path / "b.pdf").read_bytes() == data  # no date


def test_a_png_has_the_colours_of_the_page(tmp_path: Path) -> None:
    from PIL import Image

    save_chart(CHARTS[0], tmp_path / "a.png")
    image = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).reshape(-1, 3)
    found = {tuple(int(part) for part in pixel) for pixel in np.unique(image, axis=0)}
    colours = read_colours()
    for name in ("hero", "t0", "t3", "faint"):
        assert rgb(colours[name]) in found, name


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FigureError, match="svg, pdf, png"):
        save_chart(CHARTS[0], tmp_path / "a.gif")

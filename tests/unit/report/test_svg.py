"""A chart on a page and as a file of its own: one palette for both."""

import re
from xml.etree import ElementTree

import numpy as np

from fedaux.report.shapes import bubbles
from fedaux.report.svg import TONES, Chart, read_colours, read_style, text_width, tone

OKABE_ITO = {"#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}


def test_colours_are_those_of_okabe_and_ito() -> None:
    """Their eighth is black; on dark paper it is white."""
    colours = read_colours()
    named = {colours[f"t{i}"] for i in range(TONES - 1)} | {colours["hero"]}
    assert named <= OKABE_ITO
    assert len(named) == TONES
    assert colours[f"t{TONES - 1}"] == colours["ink"]


def test_every_tone_has_a_colour() -> None:
    style = read_style()
    for index in range(40):
        assert f"svg .{tone(index).split()[0]}," in style
    assert len({tone(index) for index in range(40)}) == 40


def test_a_file_of_its_own_needs_nothing_else() -> None:
    """A title, white paper, and no variables of CSS: Inkscape and LibreOffice do not know them."""
    chart = bubbles(np.array([[3]]), ["a"], ["cat"])
    text = chart.standalone("Who <holds> what")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in text
    assert "Who &lt;holds&gt; what" in text
    assert float(root.get("width", 0)) > chart.width
    assert "#ffffff" in text
    assert set(re.findall(r"#[0-9a-f]{6}", text)) <= {*read_colours().values(), "#ffffff"}


def test_a_notebook_shows_the_file() -> None:
    chart = Chart(10, 20, "<rect/>")
    assert chart._repr_svg_() == chart.standalone()
    assert 'class="narrow"' in chart.inline("narrow")


def test_capitals_are_wider() -> None:
    assert text_width(["AAA"]) > text_width(["aaa"]) > text_width(["aa"]) > text_width([]) == 0

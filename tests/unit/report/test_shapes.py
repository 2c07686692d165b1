"""Areas, lengths and shades are what they stand for; what others wrote is text."""

from xml.etree import ElementTree

import numpy as np
import pytest

from fedaux.report.shapes import Part, bars, bubbles, heat, stack
from fedaux.report.svg import NARROW, WIDE, Chart


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.inline())


def texts(chart: Chart) -> list[str]:
    return [one.text or "" for one in parsed(chart).iter("text")]


def test_bubbles_have_areas_of_records() -> None:
    counts = np.array([[100, 0], [25, 4]])
    chart = bubbles(counts, ["a", "b"], ["cat", "dog"])
    radius = {one.findtext("title"): float(one.get("r", 0)) for one in parsed(chart).iter("circle")}
    assert set(radius) == {"a: 100 × cat", "b: 25 × cat", "b: 4 × dog"}
    assert radius["a: 100 × cat"] == pytest.approx(2 * radius["b: 25 × cat"], rel=0.02)
    assert {"class", "client"} <= set(texts(chart))


def test_heat_is_the_share_and_zero_is_a_number() -> None:
    chart = heat(np.array([[0.9, 0.1], [0.0, np.nan]]), ["x", "y"], ["x", "y"], "true class", "predicted class")
    shades = [float(one.get("fill-opacity", 1)) for one in parsed(chart).iter("rect")]
    assert shades == [0.9, 0.1, 0.0, 0.0]
    found = texts(chart)
    assert [found.count(words) for words in ("90", "10", "0", "–")] == [1, 1, 1, 1]
    assert {"true class ↓", "predicted class →"} <= set(found)
    assert "y → y: not measured" in [one.text for one in parsed(chart).iter("title")]


def test_bars_and_stacks_keep_proportions() -> None:
    rects = [one for one in parsed(bars([("a", 0.5, "50 %"), ("b", 1.7, "")])).iter("rect") if one.get("class") == "t0"]
    rails = [one for one in parsed(bars([("a", 0.5, "50 %")])).iter("rect") if one.get("class") == "rail"]
    assert float(rects[0].get("width", 0)) == pytest.approx(float(rails[0].get("width", 0)) / 2, abs=1)
    assert float(rects[1].get("width", 0)) <= float(rails[0].get("width", 0)) + 1
    parts = stack([Part("a", 3, "t0"), Part("b", 1, "t1")], "4")
    widths = [float(one.get("width", 0)) for one in parsed(parts).iter("rect")]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("size", [1, 2, 10, 60, 150])
def test_charts_are_as_wide_as_they_may_be(size: int, width: float) -> None:
    rng = np.random.default_rng(0)
    names = [f"a rather long name, number {i}" for i in range(size)]
    counts = rng.integers(0, 9, (size, size))
    chart = bubbles(counts, names, names, width=width)
    assert len(list(parsed(chart).iter("circle"))) == (counts > 0).sum()
    squares = heat(rng.random((size, size)), names, names, width=width)
    assert len(list(parsed(squares).iter("rect"))) == size * size
    rows = bars([(name, 0.5, "50.0 %") for name in names], width=width)
    assert min(float(one.get("width", 0)) for one in parsed(rows).iter("rect")) > width / 6
    if size * 4 < width / 2:
        assert max(chart.width, squares.width, rows.width) <= width + 12


def test_whatever_others_wrote_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    for chart in (
        bubbles(np.ones((1, 1), np.int64), [evil], [evil]),
        bars([(evil, 0.5, evil)]),
        heat(np.ones((1, 1)), [evil], [evil], evil, evil),
        stack([Part(evil, 1, "t0")], evil),
    ):
        assert "<script" not in chart.inline()
        assert parsed(chart) is not None

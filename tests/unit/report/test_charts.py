"""Charts are well-formed, show what they are given, and escape what others wrote."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fedaux.report.charts import Chart, Line, Part, _nice, bars, bubbles, heat, line_chart, spread_out, stack


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.inline())


def texts(chart: Chart) -> list[str]:
    return [one.text or "" for one in parsed(chart).iter("text")]


def test_a_curve_rises_where_its_values_do() -> None:
    chart = line_chart([Line("up", [0.1, 0.5, 0.9])], "round", "accuracy", top=1.0, percent=True)
    (points,) = [one.get("points", "") for one in parsed(chart).iter("polyline")]
    heights = [float(pair.split(",")[1]) for pair in points.split()]
    assert heights == sorted(heights, reverse=True)
    assert {"up", "round", "accuracy", "100 %", "1", "3"} <= set(texts(chart))
    assert "up, round 2: 50.0 %" in [one.text for one in parsed(chart).iter("title")]


def test_a_band_where_there_is_a_spread() -> None:
    plain, spread = Line("a", [0.1, 0.2]), Line("a", [0.1, 0.2], spread=[0.05, 0.05])
    assert not list(parsed(line_chart([plain], "x", "y")).iter("polygon"))
    assert len(list(parsed(line_chart([spread], "x", "y")).iter("polygon"))) == 1


def test_a_single_round_is_a_dot_that_can_be_seen() -> None:
    (dot,) = parsed(line_chart([Line("one", [0.5])], "round", "accuracy")).iter("circle")
    assert "touch" not in dot.get("class", "")


@pytest.mark.parametrize(
    ("value", "nice"), [(0.9, 1), (1.0, 1), (1.7, 2), (21, 24), (3, 4), (73, 80), (9.5, 10), (0.013, 0.016)]
)
def test_axes_end_at_a_round_number(value: float, nice: float) -> None:
    assert _nice(value) == pytest.approx(nice)


def test_bubbles_have_areas_of_records() -> None:
    counts = np.array([[100, 0], [25, 4]])
    chart = bubbles(counts, ["a", "b"], ["cat", "dog"])
    radius = {one.findtext("title"): float(one.get("r", 0)) for one in parsed(chart).iter("circle")}
    assert set(radius) == {"a: 100 × cat", "b: 25 × cat", "b: 4 × dog"}
    assert radius["a: 100 × cat"] == pytest.approx(2 * radius["b: 25 × cat"], rel=0.02)


def test_heat_is_the_share() -> None:
    chart = heat(np.array([[0.9, 0.1], [0.0, 1.0]]), ["x", "y"], ["x", "y"])
    shades = [re.search(r"fill-opacity:([\d.]+)", one.get("style", "")) for one in parsed(chart).iter("rect")]
    assert [float(shade[1]) for shade in shades if shade] == [0.9, 0.1, 0.0, 1.0]
    assert texts(chart).count("100") == 1


def test_bars_and_stacks_keep_proportions() -> None:
    rects = [one for one in parsed(bars([("a", 0.5, "50 %"), ("b", 1.7, "")])).iter("rect") if one.get("class") == "t0"]
    rails = [one for one in parsed(bars([("a", 0.5, "")])).iter("rect") if one.get("class") == "rail"]
    assert float(rects[0].get("width", 0)) == pytest.approx(float(rails[0].get("width", 0)) / 2, abs=1)
    assert float(rects[1].get("width", 0)) <= float(rails[0].get("width", 0)) + 1
    widths = [
        float(one.get("width", 0)) for one in parsed(stack([Part("a", 3, "t0"), Part("b", 1, "t1")], "4")).iter("rect")
    ]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)


def test_whatever_others_wrote_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    for chart in (
        line_chart([Line(evil, [0.1])], evil, evil),
        bubbles(np.ones((1, 1), np.int64), [evil], [evil]),
        bars([(evil, 0.5, evil)]),
        heat(np.ones((1, 1)), [evil], [evil]),
        stack([Part(evil, 1, "t0")], evil),
    ):
        assert "<script" not in chart.inline()
        assert parsed(chart) is not None


@pytest.mark.parametrize("size", [1, 2, 60, 150])
def test_any_size_is_drawn(size: int) -> None:
    rng = np.random.default_rng(0)
    names = [f"n{i}" for i in range(size)]
    counts = rng.integers(0, 9, (size, size))
    assert len(list(parsed(bubbles(counts, names, names)).iter("circle"))) == (counts > 0).sum()
    assert len(list(parsed(heat(rng.random((size, size)), names, names)).iter("rect"))) >= size * size
    lines = [Line(name, rng.random(size).tolist()) for name in names[:12]]
    drawn = [one for one in parsed(line_chart(lines, "x", "y")).iter() if one.tag in ("polyline", "circle")]
    assert len(drawn) >= len(lines)


def test_values_below_zero_have_their_place() -> None:
    chart = line_chart([Line("u", [-3.0, -1.0])], "epoch", "uniformity", top=1.0)
    (points,) = [one.get("points", "") for one in parsed(chart).iter("polyline")]
    first, last = (float(pair.split(",")[1]) for pair in points.split())
    assert 0 < last < first < chart.height
    assert {"-4", "1"} <= set(texts(chart))


def test_other_values_than_rounds_can_stand_below() -> None:
    chart = line_chart([Line("kept", [0.1, 0.9])], "ε", "kept", percent=True, x_values=["0.1", "10"])
    assert {"0.1", "10"} <= set(texts(chart))
    assert "kept, ε 10: 90.0 %" in [one.text for one in parsed(chart).iter("title")]


def test_a_file_of_its_own_needs_nothing_else(tmp_path: Path) -> None:
    """A title, white paper, and no variables of CSS: Inkscape and LibreOffice do not know them."""
    chart = bubbles(np.array([[3]]), ["a"], ["cat"])
    chart.save(tmp_path / "new" / "split.svg", "Who <holds> what")
    text = (tmp_path / "new" / "split.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in text
    assert "Who &lt;holds&gt; what" in text
    assert float(root.get("width", 0)) > chart.width
    assert "#ffffff" in text


def test_labels_keep_their_distance() -> None:
    heights = [0.5, 0.5, 0.51, 0.9, 0.0, 0.01]
    placed = spread_out([(height, str(i), "t0") for i, height in enumerate(heights)], gap=0.04)
    assert [label for _, label, _ in placed] == ["4", "5", "0", "1", "2", "3"]
    assert [height for height, _, _ in placed] == pytest.approx([0.0, 0.04, 0.5, 0.54, 0.58, 0.9])


def test_labels_that_are_apart_stay_where_they_are() -> None:
    ends = [(0.1, "a", "t0"), (0.5, "b", "t1"), (0.9, "c", "t2")]
    assert spread_out(ends, gap=0.04) == ends
    assert spread_out([], gap=0.04) == []

"""Curves rise where values do, have names that can be read, and are distinct where they coincide."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fedaux.report.line_chart import Line, interleave, line_chart, nice, spread_out, ticks
from fedaux.report.svg import NARROW, WIDE, Chart, text_width, tone


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.inline())


def texts(chart: Chart) -> list[str]:
    return [one.text or "" for one in parsed(chart).iter("text")]


def curves(chart: Chart) -> list[ElementTree.Element]:
    return [one for one in parsed(chart).iter("polyline") if "curve" in one.get("class", "")]


def test_a_curve_rises_where_its_values_do() -> None:
    chart = line_chart([Line("up", [0.1, 0.5, 0.9])], "round", "accuracy", top=1.0, percent=True)
    (curve,) = curves(chart)
    heights = [float(pair.split(",")[1]) for pair in curve.get("points", "").split()]
    assert heights == sorted(heights, reverse=True)
    assert {"up", "round", "accuracy", "100 %", "1", "3"} <= set(texts(chart))
    assert "up, round 2: 50.0 %" in [one.text for one in parsed(chart).iter("title")]


def test_a_band_where_there_is_a_spread_and_room_for_it() -> None:
    """Two bands are seen; of nine, only the one whose curve is pointed at."""
    plain, spread = Line("a", [0.1, 0.2]), Line("a", [0.1, 0.2], spread=[0.05, 0.05])
    assert not list(parsed(line_chart([plain], "x", "y")).iter("polygon"))
    for count, kind in ((1, "band"), (2, "band"), (9, "band quiet")):
        bands = list(parsed(line_chart([spread] * count, "x", "y")).iter("polygon"))
        assert [one.get("class") for one in bands] == [kind] * count


def test_a_single_round_is_a_dot_that_can_be_seen() -> None:
    dots = [one.get("class", "") for one in parsed(line_chart([Line("one", [0.5])], "round", "y")).iter("circle")]
    assert "t0" in dots


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("label", ["FedPROX+P", "FedAUX, privacy.epsilon = 0.125, data.alpha = 0.01", "A" * 200])
def test_names_of_curves_stay_on_the_chart(label: str, width: float) -> None:
    chart = line_chart([Line(label, [0.1, 0.2]), Line("b", [0.2, 0.4])], "round", "y", width=width)
    assert chart.width == width
    names = [one for one in parsed(chart).iter("text") if "name" in one.get("class", "")]
    assert len(names) == 2
    for one in names:
        assert float(one.get("x", 0)) + text_width([one.text or ""]) <= width + 1
        assert 0 < float(one.get("y", 0)) <= chart.height


def test_a_name_is_led_to_by_its_own_colour() -> None:
    chart = line_chart([Line("a", [0.1, 0.5], "t0"), Line("b", [0.1, 0.51], "t3")], "round", "y", top=1.0)
    leads = {one.get("class"): one.get("points", "").split() for one in parsed(chart).iter("polyline")}
    for name, kind in (("a", "t0"), ("b", "t3")):
        (label,) = [one for one in parsed(chart).iter("text") if one.text == name]
        first, *_, last = leads[f"lead {kind}"]
        assert float(last.split(",")[1]) == pytest.approx(float(label.get("y", 0)) - 4, abs=0.2)
        assert first == leads[f"curve {kind}"][-1]


def test_curves_on_each_other_take_turns() -> None:
    lines = [Line("a", [0.1, 0.4, 0.5], "t0"), Line("b", [0.1, 0.9, 0.9], "t1"), Line("c", [0.1, 0.401, 0.5], "t2")]
    assert interleave([one.values for one in lines], 0.01) == [(0, 2), (0, 1), (1, 2)]
    drawn = curves(line_chart(lines, "round", "y", top=1.0))
    assert [one.get("stroke-dasharray") for one in drawn] == ["14 14", None, "14 14"]
    first, last = (float(drawn[i].get("stroke-dashoffset", 0)) for i in (0, 2))
    assert (first - last) % 28 == 14  # one is seen where the other is not


def test_curves_beyond_the_palette_have_markers() -> None:
    tones = [tone(i) for i in range(20)]
    assert len(set(tones)) == 20
    chart = line_chart([Line(str(i), [0.01 * i, 0.02 * i], tones[i]) for i in range(8)], "x", "y")
    marked = {one.get("class") for one in parsed(chart).iter("circle")} - {"touch"}
    assert marked == {"t0 m1", "t1 m1"}


@pytest.mark.parametrize(
    ("value", "expected"), [(0.9, 1), (1.0, 1), (1.7, 2), (21, 24), (3, 4), (73, 80), (9.5, 10), (0.013, 0.016)]
)
def test_axes_end_at_a_round_number(value: float, expected: float) -> None:
    assert nice(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [(3, 10, [0, 1, 2]), (12, 10, [1, 3, 5, 7, 9, 11]), (12, 3, [0, 4, 9]), (100, 12, [0, *range(9, 100, 10)])],
)
def test_rounds_below_an_axis_are_evenly_spaced(count: int, most: int, expected: list[int]) -> None:
    assert ticks(count, most) == expected


@pytest.mark.parametrize("size", [1, 2, 60, 150])
def test_any_size_is_drawn(size: int) -> None:
    rng = np.random.default_rng(0)
    lines = [Line(f"n{i}", rng.random(size).tolist()) for i in range(12)]
    assert len(curves(line_chart(lines, "x", "y"))) == 12


def test_values_below_zero_have_their_place() -> None:
    chart = line_chart([Line("u", [-3.0, -1.0])], "epoch", "uniformity", top=1.0)
    (curve,) = curves(chart)
    first, last = (float(pair.split(",")[1]) for pair in curve.get("points", "").split())
    assert 0 < last < first < chart.height
    assert {"-4", "1"} <= set(texts(chart))


def test_other_values_than_rounds_can_stand_below() -> None:
    chart = line_chart([Line("kept", [0.1, 0.9])], "ε", "kept", percent=True, x_values=["0.1", "10"])
    assert {"0.1", "10"} <= set(texts(chart))
    assert "kept, ε 10: 90.0 %" in [one.text for one in parsed(chart).iter("title")]


def test_others_stand_behind_in_grey() -> None:
    chart = line_chart([Line("a", [0.1, 0.2])], "x", "y", behind=[[0.3, 0.4], [0.5, 0.6]])
    kinds = [one.get("class", "") for one in parsed(chart).iter("polyline")]
    assert kinds[:3] == ["others", "others", "curve t0"]


def test_names_keep_their_distance_and_stay_near() -> None:
    wishes = [50.0, 50.0, 51.0, 90.0, 0.0, 1.0]
    found = spread_out(wishes, 4.0, 0.0, 100.0)
    assert np.diff(np.sort(found)).min() >= 4 - 1e-9
    assert np.argsort(found).tolist() == np.argsort(wishes, kind="stable").tolist()
    assert sum(found[:3]) / 3 == pytest.approx(sum(wishes[:3]) / 3)  # half move up, half down
    assert found[3] == 90.0
    assert min(found) == 0.0


def test_names_that_do_not_fit_below_move_up() -> None:
    assert spread_out([99.0, 100.0, 100.0], 10.0, 0.0, 100.0) == pytest.approx([80.0, 90.0, 100.0])
    assert spread_out([10.0, 50.0, 90.0], 4.0, 0.0, 100.0) == [10.0, 50.0, 90.0]
    assert spread_out([], 4.0, 0.0, 100.0) == []


def test_whatever_others_wrote_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    chart = line_chart([Line(evil, [0.1])], evil, evil)
    assert "<script" not in chart.inline()
    assert not re.search("<script", chart.standalone(evil))

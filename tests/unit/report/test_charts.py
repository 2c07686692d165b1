"""Charts show what they stand for, at any size; names can be read; a file is the same
in every format.
"""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fedaux.core.errors import MissingPackageError
from fedaux.report.charts import (
    Bars,
    Bubbles,
    Chart,
    FigureError,
    Heat,
    Line,
    LineChart,
    nice,
    spread_out,
    ticks,
)
from fedaux.report.svg import (
    NARROW,
    TONES,
    WIDE,
    Svg,
    read_colours,
    read_style,
    text_width,
    tone,
)

EVIL = "<script>alert(1)</script>"
OKABE_ITO = {
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f0e442",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
}
LINES = [
    Line("FedAUX, ε = 1", [0.1, 0.8], "hero", spread=[0.1, 0.1], best=True),
    Line("$5", [0.1, 0.3], "t0"),
    Line("b", [0.1, 0.3], "t3 m1"),
]
CHARTS = (
    LineChart(LINES, "round", "test accuracy", top=1.0, percent=True),
    LineChart([Line("one round", [0.5])], "round", "y"),
    LineChart([Line("a long name " * 9, [0.5]), Line("b", [0.6])], "round", "y"),
    Bubbles(np.array([[3, 1]]), ["a"], ["cat", "a $longer$ name"]),
    Bars([("a", 0.5, "50 %")]),
    Heat(np.array([[0.9, np.nan]]), ["a"], ["a long name", "b"], "true", "predicted"),
    Heat(np.eye(60), list(map(str, range(60))), list(map(str, range(60)))),
)


def parsed(chart: Svg) -> ElementTree.Element:
    return ElementTree.fromstring(chart.inline())


def texts(chart: Chart) -> list[str]:
    return [one.text or "" for one in parsed(chart.svg()).iter("text")]


def titles(chart: Chart) -> list[str]:
    return [one.text or "" for one in parsed(chart.svg()).iter("title")]


def curves(chart: Chart) -> list[ElementTree.Element]:
    return [
        one
        for one in parsed(chart.svg()).iter("polyline")
        if "curve" in one.get("class", "")
    ]


def heights(curve: ElementTree.Element) -> list[float]:
    return [float(pair.split(",")[1]) for pair in curve.get("points", "").split()]


def test_a_curve_rises_where_its_values_do() -> None:
    chart = LineChart(
        [Line("up", [0.1, 0.5, 0.9])], "round", "accuracy", top=1.0, percent=True
    )
    (curve,) = curves(chart)
    assert heights(curve) == sorted(heights(curve), reverse=True)
    assert {"up", "round", "accuracy", "100 %", "1", "3"} <= set(texts(chart))
    assert "up, round 2: 50.0 %" in titles(chart)
    below = LineChart([Line("u", [-3.0, -1.0])], "epoch", "uniformity", top=1.0)
    first, last = heights(curves(below)[0])
    assert 0 < last < first < below.svg().height
    assert {"-4", "1"} <= set(texts(below))
    other = LineChart(
        [Line("kept", [0.1, 0.9])], "ε", "kept", percent=True, x_values=["0.1", "10"]
    )
    assert {"0.1", "10"} <= set(texts(other))
    assert "kept, ε 10: 90.0 %" in titles(other)


def test_a_level_line_is_dashed_from_edge_to_edge() -> None:
    """One exchange is no learning curve."""
    up = Line("up", [0.7, 0.75, 0.8])
    level = Line("head", [0.9], "t1", level=True)
    chart = LineChart(
        [up, level, Line("", [0.7, 0.8])],
        "round",
        "y",
        bottom=0.6,
        top=1.0,
        percent=True,
    )
    assert chart.count == 3
    lines = list(parsed(chart.svg()).iter("polyline"))
    (drawn,) = [line for line in lines if line.get("class") == "level t1"]
    first, last = (pair.split(",") for pair in drawn.get("points", "").split())
    curve = curves(chart)[0].get("points", "").split()
    assert (first[0], last[0]) == (curve[0].split(",")[0], curve[-1].split(",")[0])
    assert first[1] == last[1]
    assert "head: 90.0 %" in titles(chart)
    assert {"60 %", "100 %"} <= set(texts(chart))
    assert "0 %" not in texts(chart)
    # in the legend of a narrow chart, its sample is dashed, and nameless lines have none
    narrow = list(parsed(chart.svg(90)).iter("polyline"))
    samples = [line.get("class") for line in narrow if "lead" in line.get("class", "")]
    assert samples == ["lead t1 level", "lead t0"]


def test_a_band_where_there_is_a_spread_and_room_for_it() -> None:
    """Two bands are seen; of nine, only the one whose curve is pointed at."""
    plain, spread = Line("a", [0.1, 0.2]), Line("a", [0.1, 0.2], spread=[0.05, 0.05])
    assert not list(parsed(LineChart([plain], "x", "y").svg()).iter("polygon"))
    for count, kind in ((1, "band"), (2, "band"), (9, "band quiet")):
        bands = list(
            parsed(LineChart([spread] * count, "x", "y").svg()).iter("polygon")
        )
        assert [one.get("class") for one in bands] == [kind] * count


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(
    "label",
    ["FedProx+P", "FedAUX, privacy.epsilon = 0.125, data.alpha = 0.01", "A" * 200],
)
def test_names_of_curves_stay_on_the_chart(label: str, width: float) -> None:
    chart = LineChart(
        [Line(label, [0.1, 0.2], best=True), Line("b", [0.2, 0.4])], "round", "y"
    ).svg(width)
    assert chart.width == width
    names = [
        one for one in parsed(chart).iter("text") if "name" in one.get("class", "")
    ]
    assert sorted("best" in one.get("class", "") for one in names) == [False, True]
    for one in names:
        assert float(one.get("x", 0)) + text_width([one.text or ""]) <= width + 1
        assert 0 < float(one.get("y", 0)) <= chart.height


def test_names_keep_their_distance_and_stay_near() -> None:
    wishes = [50.0, 50.0, 51.0, 90.0, 0.0, 1.0]
    found = spread_out(wishes, 4.0, 0.0, 100.0)
    assert np.diff(np.sort(found)).min() >= 4 - 1e-9
    assert np.argsort(found).tolist() == np.argsort(wishes, kind="stable").tolist()
    assert found[1] == pytest.approx(50.5)  # the others move up and down
    assert (found[3], min(found)) == (90.0, 0.0)
    assert spread_out([99.0, 100.0, 100.0], 10.0, 0.0, 100.0) == pytest.approx(
        [80.0, 90.0, 100.0]
    )
    assert spread_out([], 4.0, 0.0, 100.0) == []


def test_curves_are_told_apart_by_more_than_colour() -> None:
    """Another dash for every colour, and a marker after the last."""
    tones = [tone(i) for i in range(40)]
    assert len(set(tones)) == 40
    chart = LineChart(
        [Line(str(i), [0.01 * i, 0.02 * i], tones[i]) for i in range(8)], "x", "y"
    )
    marked = {one.get("class") for one in parsed(chart.svg()).iter("circle")} - {
        "touch"
    }
    assert marked == {"t0 m1", "t1 m1"}
    dashes = re.findall(r"\.curve\.t\d \{ (stroke-dasharray: [^;]+);", read_style())
    assert len(set(dashes)) == TONES - 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.9, 1),
        (1.0, 1),
        (1.7, 2),
        (21, 24),
        (3, 4),
        (73, 80),
        (9.5, 10),
        (0.013, 0.016),
    ],
)
def test_axes_end_at_a_round_number(value: float, expected: float) -> None:
    assert nice(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (3, 10, [0, 1, 2]),
        (12, 10, [1, 3, 5, 7, 9, 11]),
        (12, 3, [0, 4, 9]),
        (100, 12, [0, *range(9, 100, 10)]),
    ],
)
def test_rounds_below_an_axis_are_evenly_spaced(
    count: int, most: int, expected: list[int]
) -> None:
    assert ticks(count, most) == expected


def test_areas_lengths_and_shades_are_what_they_stand_for() -> None:
    discs = parsed(
        Bubbles(np.array([[100, 0], [25, 4]]), ["a", "b"], ["cat", "dog"]).svg()
    ).iter("circle")
    radius = {one.findtext("title"): float(one.get("r", 0)) for one in discs}
    assert set(radius) == {"a: 100 × cat", "b: 25 × cat", "b: 4 × dog"}
    assert radius["a: 100 × cat"] == pytest.approx(2 * radius["b: 25 × cat"], rel=0.02)
    rects = list(parsed(Bars([("a", 0.5, "50 %"), ("b", 1.7, "")]).svg()).iter("rect"))
    rail, half, _, whole = (float(one.get("width", 0)) for one in rects)
    assert half == pytest.approx(rail / 2, abs=1)
    assert whole == rail  # never longer
    heat = Heat(
        np.array([[0.9, 0.1], [0.0, np.nan]]),
        ["x", "y"],
        ["x", "y"],
        "true class",
        "predicted class",
    )
    assert [
        float(one.get("fill-opacity", 1)) for one in parsed(heat.svg()).iter("rect")
    ] == [0.9, 0.1, 0.0, 0.0]
    assert [texts(heat).count(words) for words in ("90", "10", "0", "–")] == [
        1,
        1,
        1,
        1,
    ]
    assert "y → y: not measured" in titles(heat)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("size", [1, 2, 10, 60, 150])
def test_charts_of_any_size_are_as_wide_as_they_may_be(size: int, width: float) -> None:
    rng = np.random.default_rng(0)
    names = [f"a rather long name, number {i}" for i in range(size)]
    counts = rng.integers(0, 9, (size, size))
    discs, squares = (
        Bubbles(counts, names, names).svg(width),
        Heat(rng.random((size, size)), names, names).svg(width),
    )
    rows = Bars([(name, 0.5, "50.0 %") for name in names]).svg(width)
    assert len(list(parsed(discs).iter("circle"))) == (counts > 0).sum()
    assert len(list(parsed(squares).iter("rect"))) == size * size
    assert (
        min(float(one.get("width", 0)) for one in parsed(rows).iter("rect")) > width / 6
    )
    if size * 4 < width / 2:
        assert max(discs.width, squares.width, rows.width) <= width + 12
    assert (
        len(curves(LineChart([Line("n", rng.random(size).tolist())] * 12, "x", "y")))
        == 12
    )


def test_whatever_others_wrote_is_escaped() -> None:
    for chart in (
        LineChart([Line(EVIL, [0.1])], EVIL, EVIL),
        Bubbles(np.ones((1, 1), np.int64), [EVIL], [EVIL]),
        Bars([(EVIL, 0.5, EVIL)]),
        Heat(np.ones((1, 1)), [EVIL], [EVIL], EVIL, EVIL),
    ):
        assert "<script" not in chart.svg().inline() + chart.svg().standalone(EVIL)
        assert parsed(chart.svg()) is not None


def test_colours_are_those_of_okabe_and_ito() -> None:
    """Their eighth is black; on dark paper it is white."""
    colours = read_colours()
    named = {colours[f"t{i}"] for i in range(TONES - 1)} | {colours["hero"]}
    assert named <= OKABE_ITO
    assert len(named) == TONES
    assert colours[f"t{TONES - 1}"] == colours["ink"]


def test_an_svg_file_needs_nothing_else(tmp_path: Path) -> None:
    """A title, white paper, and no variables of CSS: Inkscape and LibreOffice do not
    know them.
    """
    chart = CHARTS[3]
    chart.save(tmp_path / "a.svg", "Who <holds> what")
    text = (tmp_path / "a.svg").read_text()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in text
    assert "Who &lt;holds&gt; what" in text
    assert set(re.findall(r"#[0-9a-f]{6}", text)) <= {
        *read_colours().values(),
        "#ffffff",
    }
    assert chart._repr_svg_() == chart.svg().standalone()  # a notebook shows the same
    with pytest.raises(FigureError, match="svg, pdf, png"):
        CHARTS[0].save(tmp_path / "a.gif")


@pytest.mark.parametrize("chart", CHARTS)
def test_a_pdf_has_its_fonts_and_no_date(chart: Chart, tmp_path: Path) -> None:
    for name in ("new/a.pdf", "b.pdf"):
        chart.save(tmp_path / name, "A title")
    data = (tmp_path / "new" / "a.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert b"/FontFile2" in data  # embedded TrueType
    assert (tmp_path / "b.pdf").read_bytes() == data


@pytest.mark.parametrize(
    ("module", "remedy"),
    [("cairosvg.parser", "pip install -e '.[figures]'"), ("cairocffi", "libcairo2")],
)
def test_what_is_missing_for_a_pdf_is_named(
    module: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package, or the library that it loads."""

    class Missing:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == module == "cairocffi":
                raise OSError('no library called "cairo-2" was found')
            if name == module:
                raise ImportError(name)

    for name in [name for name in sys.modules if name.startswith("cairo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(MissingPackageError, match=re.escape(remedy)):
        CHARTS[0].save(tmp_path / "a.pdf")
    CHARTS[0].save(tmp_path / "a.svg")


def test_a_png_has_the_colours_of_the_page(tmp_path: Path) -> None:
    from PIL import Image

    CHARTS[0].save(tmp_path / "a.png")
    image = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).reshape(-1, 3)
    found = {"#{:02x}{:02x}{:02x}".format(*pixel) for pixel in np.unique(image, axis=0)}
    assert {read_colours()[name] for name in ("hero", "t0", "t3", "faint")} <= found


def test_sites_have_their_names_and_simulated_clients_numbers() -> None:
    counts = np.ones((3, 2), int)
    sites = texts(Bubbles(counts, ["charite", "lyon", "utrecht"], ["cat", "dog"]))
    assert {"charite", "lyon", "utrecht"} <= set(sites)
    simulated = [f"client-{i:03}" for i in range(3)]
    assert {"0", "1", "2"} <= set(texts(Bubbles(counts, simulated, ["cat", "dog"])))
    many = [f"hospital-of-a-long-name-{i}" for i in range(40)]
    assert "38" in texts(Bubbles(np.ones((40, 2), int), many, ["cat", "dog"]))


def test_a_curve_may_begin_later_than_others() -> None:
    lines = [Line("a", [0.1, 0.5, 0.6]), Line("b", [0.7, 0.8], offset=1)]
    chart = LineChart(lines, "round", "y", x_values=["0", "1", "2"])
    assert chart.count == 3
    assert "b, round 1: 0.7" in titles(chart)
    assert "a, round 0: 0.1" in titles(chart)

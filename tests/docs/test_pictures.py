"""Pictures of the site are those of their scripts, and can be read on a phone, on light
and on dark pages.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
DRAWINGS = sorted(DOCS.glob("images/*.svg"))
PHONE = 358  # pixels that a picture has on a screen of 390
SMALLEST = 12  # pixels of a letter there
SCRIPTS = {  # pictures that are the same whenever they are drawn, by script
    "pictures": ("public-data", "sight", "topology"),
    "phase_pictures": ("phases", "release", "round"),
    "curve_pictures": ("demo", "whole-networks", "first-rounds"),
    "epsilon_picture": ("epsilon",),
    "rooms_picture": ("rooms",),
}


@pytest.fixture(autouse=True)
def _beside_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script of docs/ imports `drawing` from its folder."""
    monkeypatch.syspath_prepend(DOCS)


def is_named(tag: str, name: str) -> bool:
    return tag.rpartition("}")[2] == name


def texts_of(drawing: str) -> list[tuple[ElementTree.Element, list[str]]]:
    """Each text with the classes of itself and of the elements around it."""
    found: list[tuple[ElementTree.Element, list[str]]] = []

    def visit(element: ElementTree.Element, around: list[str]) -> None:
        classes = [*around, *element.get("class", "").split()]
        if is_named(element.tag, "text"):
            found.append((element, classes))
        for child in element:
            visit(child, classes)

    visit(ElementTree.fromstring(drawing), [])
    return found


def smallest_letters(drawing: str) -> float:
    """Pixels of the smallest text on a phone."""
    root = ElementTree.fromstring(drawing)
    style = "".join(re.findall(r"<style>(.*?)</style>", drawing, re.DOTALL))
    rules = re.findall(r"([^{}]+)\{[^{}]*font-size: ([\d.]+)px", style)
    sizes: dict[str, float] = {}
    for selectors, size in rules:
        for selector in selectors.split(","):
            sizes[selector.strip().removeprefix("text.").removeprefix(".")] = float(
                size
            )
    drawn = [
        min(
            (sizes[kind] for kind in classes if kind in sizes),
            default=sizes.get("text"),
        )
        for _, classes in texts_of(drawing)
    ]
    scale = min(1.0, PHONE / float(root.get("viewBox", "").split()[2]))
    return min((size for size in drawn if size is not None), default=SMALLEST) * scale


def boxes_of(drawing: str) -> list[tuple[float, float, float, float]]:
    """Left, top, width and height of every filled rectangle."""
    root = ElementTree.fromstring(drawing)
    across, down = float(root.get("width", 0)), float(root.get("height", 0))
    lengths = {"x": across, "width": across, "y": down, "height": down}
    boxes: list[tuple[float, float, float, float]] = []
    for rect in (one for one in root.iter() if is_named(one.tag, "rect")):
        places = []
        for name in ("x", "y", "width", "height"):
            text = rect.get(name, "0")
            share = text.endswith("%")
            number = float(text.removesuffix("%"))
            places.append(number / 100 * lengths[name] if share else number)
        boxes.append((places[0], places[1], places[2], places[3]))
    return boxes


def has_ground(drawing: str) -> bool:
    """Whether all words are on shapes of the picture, whatever the page is."""
    root = ElementTree.fromstring(drawing)
    across, down = float(root.get("width", 0)), float(root.get("height", 0))
    boxes = boxes_of(drawing)
    if any(
        width >= 0.98 * across and height >= 0.98 * down for *_, width, height in boxes
    ):
        return True
    return all(
        any(
            left <= float(text.get("x", 0)) <= left + width
            and top <= float(text.get("y", 0)) <= top + height
            for left, top, width, height in boxes
        )
        for text, _ in texts_of(drawing)
    )


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_picture_can_be_read_on_a_phone(path: Path) -> None:
    assert smallest_letters(path.read_text(encoding="utf-8")) >= SMALLEST


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_picture_can_be_read_on_any_page(path: Path) -> None:
    """Light or dark: an image does not know the page around it."""
    assert has_ground(path.read_text(encoding="utf-8"))


def test_the_checks_can_fail() -> None:
    wide = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="716" height="100" '
        'viewBox="0 0 716 100"><style>'
        "text { font-size: 30px; } .s, .t { font-size: 20px; }</style>"
        '<rect x="0" y="0" width="300" height="100"/><text x="10" y="50">a</text>'
        '<text x="310" y="50" class="s">b</text></svg>'
    )
    assert smallest_letters(wide) == 10
    assert not has_ground(wide)
    narrow = wide.replace("716", "300").replace('"310"', '"200"')
    assert smallest_letters(narrow) == 20
    assert has_ground(narrow)


@pytest.mark.parametrize(
    ("script", "name"),
    [(script, name) for script, names in SCRIPTS.items() for name in names],
)
def test_a_picture_is_that_of_its_script(script: str, name: str) -> None:
    module = importlib.import_module(script)
    draw = getattr(module, "PICTURES", {}).get(name) or module.draw
    drawn = (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == draw(), f"run `python docs/{script}.py`"


def test_the_picture_of_the_rooms_has_all_rooms() -> None:
    picture = importlib.import_module("rooms_picture")
    assert set(picture.PURPOSES) == {
        path.parent.name for path in picture.PACKAGE.glob("*/__init__.py")
    }


def test_axes_of_the_epsilon_picture_hold_all_their_values() -> None:
    """A value outside of an axis would be drawn at its edge."""
    picture = importlib.import_module("epsilon_picture")
    for panel in picture.panels():
        for line in panel.chart.lines:
            assert panel.chart.bottom <= min(line.values)
            assert max(line.values) <= panel.chart.top

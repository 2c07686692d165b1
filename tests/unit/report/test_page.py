"""One self-contained page, in which whatever others wrote is text."""

import re
from importlib.resources import files
from pathlib import Path

from fedaux.report.charts import Line, LineChart
from fedaux.report.page import Figure, Section, Tile, TopExamples, write_page
from fedaux.report.tables import Table
from helpers.pages import Page

EVIL = "<script>alert(1)</script>"
CHART = LineChart([Line("curve", [0.1, 0.2])], "round", "height")


def test_everything_is_on_it_in_order(tmp_path: Path) -> None:
    sections = [
        Section("first", "First", "Words.", [Figure(CHART, "Caption.")]),
        Section(
            "second",
            "Second",
            table=Table(("a", "b"), [("1", "2")]),
            code="x = 1",
            details="y = 2",
        ),
        Section("third", "Third", top_examples=[TopExamples("me", texts=("a text",))]),
    ]
    path = write_page(
        tmp_path / "page.html",
        "Title",
        "Subtitle",
        [Tile("42 %", "of all", warn=True)],
        sections,
    )
    text = path.read_text()
    assert Page(text).sections == ["first", "second", "third"]
    places = [
        text.index(word)
        for word in (
            "Title",
            "Subtitle",
            "42 %",
            "Words.",
            "<polyline",
            "Caption.",
            "x = 1",
            "a text",
        )
    ]
    assert places == sorted(places)
    assert "y = 2" in text
    assert Page(text).loads == []


def test_what_others_wrote_is_text(tmp_path: Path) -> None:
    section = Section(
        "s",
        EVIL,
        EVIL,
        [Figure(CHART, EVIL)],
        Table((EVIL,), [(EVIL,)]),
        code=EVIL,
        details=EVIL,
    )
    text = write_page(
        tmp_path / "page.html", EVIL, EVIL, [Tile(EVIL, EVIL)], [section]
    ).read_text()
    assert "script" not in Page(text).tags
    assert text.count("&lt;script&gt;") >= 10


def test_a_chart_with_a_name_is_also_a_file_beside_the_page(tmp_path: Path) -> None:
    figures = [Figure(CHART, file="curves", title="Curves"), Figure(CHART)]
    write_page(
        tmp_path / "page.html", "Title", "", [], [Section("s", "Section", "", figures)]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "curves.svg",
        "page.html",
    ]
    assert "Curves" in (tmp_path / "curves.svg").read_text()


def test_charts_are_drawn_for_a_desk_and_for_a_phone(tmp_path: Path) -> None:
    """Text that shrinks with its chart cannot be read on a phone."""
    section = Section("s", "Section", "", [Figure(CHART)])
    text = write_page(tmp_path / "page.html", "Title", "", [], [section]).read_text()
    widths = re.findall(r'class="(wide|narrow)" viewBox="0 0 (\d+)', text)
    assert widths == [("wide", "820"), ("narrow", "350")]
    assert text.count("<svg") == 2


def test_a_wide_table_scrolls_by_itself(tmp_path: Path) -> None:
    """On a phone, the last columns were cut off."""
    table = Table(tuple("abcdefgh"), [("a long cell",) * 8])
    section = Section("s", "Section", "", table=table)
    text = write_page(tmp_path / "page.html", "Title", "", [], [section]).read_text()
    assert text.count("<table") == text.count('<div class="scroll"><table') == 1
    (rule,) = re.findall(r"\.scroll \{(.*?)\}", text)
    assert "overflow-x: auto" in rule


def test_what_phones_change_in_tables_stands_after_what_it_changes() -> None:
    """Before, it had no effect, and the first column was one letter wide."""
    style = (files("fedaux.report") / "page.css").read_text("utf-8")
    phone = style.index("table { font-size: 12px; }")
    assert style.rindex("@media", 0, phone) == style.rindex(
        "@media (max-width", 0, phone
    )
    for base in ("table { border-collapse", "th, td { padding: 4px", "td:not(:first-"):
        assert style.index(base) < phone
    assert "overflow-wrap: anywhere" not in style

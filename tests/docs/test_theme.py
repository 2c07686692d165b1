"""The site's theme: a logo of its own, colours that can be read, and nothing fetched from
elsewhere.
"""

from __future__ import annotations

import colorsys
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
STYLE = (ROOT / "docs" / "extra.css").read_text(encoding="utf-8")
READABLE = 4.5  # contrast of small text, WCAG AA


def rule(selector: str) -> str:
    (body,) = re.findall(rf"^{re.escape(selector)} \{{(.*?)\}}", STYLE, re.M | re.S)
    return str(body)


def colour(selector: str, name: str) -> tuple[float, ...]:
    (value,) = re.findall(rf"--{name}: #([0-9a-f]{{6}});", rule(selector))
    return tuple(int(value[place : place + 2], 16) / 255 for place in (0, 2, 4))


def luminance(shade: tuple[float, ...]) -> float:
    parts = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in shade
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


WHITE = (1.0, 1.0, 1.0)
LIGHT, DARK = '[data-md-color-scheme="default"]', '[data-md-color-scheme="slate"]'
# of the theme's dark scheme: this hue, a saturation of 15 % and a lightness of 14 %
(HUE,) = re.findall(r"--md-hue: (\d+);", STYLE)
NIGHT = colorsys.hls_to_rgb(int(HUE) / 360, 0.14, 0.15)


@pytest.mark.parametrize(
    ("words", "ground"),
    [
        (WHITE, colour(":root", "md-primary-fg-color")),
        (colour(":root", "md-accent-fg-color"), WHITE),
        (colour(LIGHT, "md-typeset-a-color"), WHITE),
        (colour(DARK, "md-typeset-a-color"), NIGHT),
        (colour(DARK, "md-accent-fg-color"), NIGHT),
    ],
    ids=["header", "accent", "link", "link at night", "accent at night"],
)
def test_words_can_be_read(words: tuple[float, ...], ground: tuple[float, ...]) -> None:
    assert contrast(words, ground) >= READABLE


def test_contrast_is_that_of_the_web() -> None:
    assert contrast(WHITE, (0.0, 0.0, 0.0)) == pytest.approx(21)
    assert contrast(WHITE, (0.5, 0.5, 0.5)) < READABLE


def test_logo_and_style_are_ours() -> None:
    for key in ("logo", "favicon"):
        (file,) = re.findall(rf"^  {key}: (\S+)$", SETTINGS, re.M)
        assert (ROOT / "docs" / file).is_file()
    assert SETTINGS.count("primary: custom") == SETTINGS.count("      scheme: ") == 2
    assert "extra_css: [extra.css]" in SETTINGS
    assert "font: false" in SETTINGS
    assert not re.search(r"url\(|@import|https?:", STYLE)

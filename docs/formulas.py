"""Formulas and numbers on the site: `e^{−τ²/2}` and `D_i` of the pages, which are plain
text, with their exponents and indices set, and `84.1 ± 0.6 %` in one piece.

A hook of MkDocs. Only text is touched, never code; the sources stay as GitHub and an
editor show them.
"""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(<(pre|code|script|style|svg|title)\b.*?</\2>|<[^>]+>)", re.DOTALL)
_LETTER = r"(?<![A-Za-z0-9_&;])([A-Za-zΑ-Ωα-ω∇Σ√][̃̄]?′?)"
_RULES = (
    (re.compile(r"\^\{([^{}]*)\}"), r"<sup>\1</sup>"),
    (re.compile(r"_\{([^{}]*)\}"), r"<sub>\1</sub>"),
    (re.compile(r"(?<=[\w)⟩‖])\^(\([^()]*\)|⟨[^⟨⟩]*⟩|[^\W_]+)"), r"<sup>\1</sup>"),
    (re.compile(_LETTER + r"_(\w+?)(?=[²³₁₂]|\b)"), r"\1<sub>\2</sub>"),
    # a number, its deviation and its unit stay on one line
    (re.compile(r"(?<=\d) ± (?=\d)"), "\u00a0±\u00a0"),
    (re.compile(r"(?<=\d) %"), "\u00a0%"),
)


def set_formulas(html: str) -> str:
    """Text outside of tags and code, with exponents and indices as such, and without
    line breaks inside of a number.
    """
    found, position = [], 0
    for match in _CODE.finditer(html):
        found += [_set(html[position : match.start()]), match.group()]
        position = match.end()
    return "".join([*found, _set(html[position:])])


def _set(text: str) -> str:
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    return set_formulas(html)

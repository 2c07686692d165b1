"""Docstrings of public names are in plain words: patterns that engineers hardly use
are at most twice as frequent as in Opacus.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import fedaux
import fedaux.flower

MOST_PER_TEN_THOUSAND_WORDS = {
    r";": 6,
    r"\b(not|no|never|nothing|nobody|none|neither|nor|without|cannot)\b": 170,
    r"\bwhat (is|was|are|it|a|an|the|they|clients?|sites?|each|one|you)\b": 34,
    r"\bown\b": 10,
}


def docstrings() -> Iterator[str]:
    """Of every public function and class, and of the public methods of a class."""
    for module in (fedaux, fedaux.flower):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield found.__doc__ or ""
            if inspect.isclass(found) and found.__module__.startswith("fedaux"):
                yield found.__doc__ or ""
                yield from map(of_a_member, public_members(found))


def public_members(found: type) -> list[object]:
    return [member for key, member in vars(found).items() if not key.startswith("_")]


def of_a_member(member: object) -> str:
    """The docstring of a method or property, or "" for a plain value."""
    if not inspect.isroutine(member) and not isinstance(member, property):
        return ""
    return inspect.getdoc(member) or ""


def rate(pattern: str, text: str) -> float:
    """How often it occurs in 10,000 words."""
    return 1e4 * len(re.findall(pattern, text, re.IGNORECASE)) / len(text.split())


def test_public_docstrings_are_in_plain_words() -> None:
    text = re.sub(r"`[^`\n]*`", "X", "\n".join(docstrings()))
    assert len(text.split()) > 6000
    rates = {pattern: rate(pattern, text) for pattern in MOST_PER_TEN_THOUSAND_WORDS}
    assert {
        pattern: found
        for pattern, found in rates.items()
        if found > MOST_PER_TEN_THOUSAND_WORDS[pattern]
    } == {}


def test_a_pattern_is_counted() -> None:
    assert rate(r"\bown\b", "its own way, and the Own one") == 2e4 / 7

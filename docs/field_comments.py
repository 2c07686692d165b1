"""For the reference: the fields of a dataclass as a table, described by the comments behind them, written once."""

import io
import tokenize
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Adds a section "Attributes" to the docstring of every dataclass: name, type, comment, default."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring is None or not any("dataclass" in str(one.value) for one in cls.decorators):
            return
        fields = [one for one in cls.attributes.values() if one.annotation is not None and "property" not in one.labels]
        rows = [f"    {one.name}: {described(one)}" for one in fields if not one.name.startswith("_")]
        if rows:
            cls.docstring.value = "\n".join([cls.docstring.value, "", "Attributes:", *rows])


def described(field: griffe.Attribute) -> str:
    """`How many. Default 10.`"""
    default = str(field.value)
    told = field.value is not None and not default.startswith("field(")
    return " ".join(part for part in (comment_of(field.source), f"Default `{default}`." if told else "") if part) or "–"


def comment_of(source: str) -> str:
    """`rounds: int = 10  # how many` → `How many.`"""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source.strip()).readline))
    except (tokenize.TokenError, IndentationError):
        return ""
    text = " ".join(token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""

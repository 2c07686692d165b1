"""The fields of a dataclass as a table for the reference, described by their comments.

A comment stands above its field, or behind it if the line is short.
"""

import io
import tokenize
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Adds a section "Attributes" to the docstring of every dataclass."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        decorators = [str(decorator.value) for decorator in cls.decorators]
        is_dataclass = any("dataclass" in decorator for decorator in decorators)
        if cls.docstring is None or not is_dataclass:
            return
        rows = [
            f"    {attribute.name}: {described(attribute)}"
            for attribute in cls.attributes.values()
            if is_public_field(attribute)
        ]
        if rows:
            docstring = [cls.docstring.value, "", "Attributes:", *rows]
            cls.docstring.value = "\n".join(docstring)


def is_public_field(attribute: griffe.Attribute) -> bool:
    is_field = attribute.annotation is not None and "property" not in attribute.labels
    return is_field and not attribute.name.startswith("_")


def described(field: griffe.Attribute) -> str:
    """`How many. Default 10.`"""
    sentences = [comment_of(source_of(field))]
    default = str(field.value)
    if field.value is not None and not default.startswith("field("):
        sentences.append(f"Default `{default}`.")
    return " ".join(sentence for sentence in sentences if sentence) or "–"


def source_of(field: griffe.Attribute) -> str:
    """Return the lines of a field, and the comments right above it."""
    lines = field.lines_collection[field.filepath]
    start = field.lineno - 1
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return "\n".join(line.strip() for line in lines[start : field.endlineno])


def comment_of(source: str) -> str:
    """`rounds: int = 10  # how many` → `How many.`"""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source.strip()).readline))
    except (tokenize.TokenError, IndentationError):
        return ""
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    text = " ".join(comment.lstrip("# ") for comment in comments)
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""

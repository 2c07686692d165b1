"""For the reference: the comment behind a field of a dataclass is its documentation, so that it is written once."""

import io
import tokenize
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Gives attributes without a docstring the comment that follows them in their own lines."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and not attr.is_alias and (text := comment_of(attr.source)):
            attr.docstring = griffe.Docstring(text, parent=attr)


def comment_of(source: str) -> str:
    """`rounds: int = 10  # how many` → `How many.`"""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source.strip()).readline))
    except (tokenize.TokenError, IndentationError):
        return ""
    text = " ".join(token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""

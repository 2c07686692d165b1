"""The changelog on the site: `CHANGELOG.md` of the checkout, whose links start there
instead of in this folder.

A hook of MkDocs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_TEXT = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page."""
    if page.file.src_uri != "changelog.md":
        return markdown
    return _TEXT.read_text(encoding="utf-8").replace("](docs/", "](")

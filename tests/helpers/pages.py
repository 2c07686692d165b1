"""A written page, as a browser would take it in."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Sections, and everything that a page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.tags.append(tag)
        if tag == "section":
            self.sections.append(facts["id"] or "")
        if tag in ("script", "link", "img", "iframe", "object"):
            self.loads.append(facts.get("src") or facts.get("href") or tag)

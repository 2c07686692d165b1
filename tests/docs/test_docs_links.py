"""Links lead somewhere: files, anchors and pictures exist, addresses are well formed,
no page names a machine.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")]
)
DRAWINGS = sorted(ROOT.glob("docs/images/*.svg"))
TEXT_FILES = sorted(
    {
        *PAGES,
        *DRAWINGS,
        *ROOT.glob("*.yml"),
        *ROOT.glob("*.cff"),
        *ROOT.glob(".github/**/*.yml"),
    }
)

DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
# a regular expression of the paths that `exclude_docs` names
OFF_THE_SITE = "|".join(
    re.escape(path) for path in re.findall(r"^  /(\S+)$", SITE, flags=re.MULTILINE)
)

_FENCED = re.compile(r"^ *```.*?^ *```", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)[^)]*\)")
_AUTOLINK = re.compile(r"<(https?:[^>]+)>")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", flags=re.MULTILINE)
_MACHINE = re.compile(
    r"(?<![\w.])/(?:work|home|root|Users|mnt|opt)/\w|[A-Za-z]:\\Users"
)


def prose(text: str) -> str:
    """Without code: links in it are not links."""
    return re.sub(r"`[^`\n]*`", "`code`", _FENCED.sub("", text))


def links(page: Path) -> list[str]:
    text = prose(page.read_text(encoding="utf-8"))
    return [*_LINK.findall(text), *_AUTOLINK.findall(text)]


def _plain(heading: str) -> str:
    return (
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        .replace("`", "")
        .replace("*", "")
    )


def site_anchor(heading: str) -> str:
    """As the site makes them (Python-Markdown): ASCII only."""
    text = (
        unicodedata.normalize("NFKD", _plain(heading))
        .encode("ascii", "ignore")
        .decode()
    )
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def hub_anchor(heading: str) -> str:
    """As code hosts make them: letters of any alphabet, and every space its own
    hyphen.
    """
    return re.sub(r"[^\w\s-]", "", _plain(heading).strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Those that hold both on the site and in the repository."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    return frozenset(map(site_anchor, headings)) & frozenset(map(hub_anchor, headings))


def wrong(page: Path, target: str) -> str:
    """What is wrong with this link of this page; "" if nothing is."""
    if re.match(r"[a-z]+:", target):
        parts = urlsplit(target)
        web = (
            parts.scheme == "https"
            and "." in (parts.hostname or "")
            and not re.search(r"[\s<>\"]", target)
        )
        return (
            ""
            if web or parts.scheme == "mailto"
            else "no address of the web, or not https"
        )
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists():
        return "no such file"
    if page.is_relative_to(ROOT / "docs") and not file.is_relative_to(ROOT / "docs"):
        return "leaves docs/, which the site does not"
    return "no such heading" if anchor and anchor not in anchors(file) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    found = {target: wrong(page, target) for target in links(page)}
    assert not {target: why for target, why in found.items() if why}


@pytest.mark.parametrize(
    "file", TEXT_FILES, ids=lambda file: str(file.relative_to(ROOT))
)
def test_no_machine_is_named(file: Path) -> None:
    assert _MACHINE.findall(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda file: file.name)
def test_drawings_stand_alone_and_can_be_read_aloud(drawing: Path) -> None:
    """Well-formed, with a title and a description, and nothing fetched from
    elsewhere.
    """
    root = ElementTree.parse(drawing).getroot()
    names = {child.tag.rpartition("}")[2] for child in root}
    assert {"title", "desc"} <= names
    assert root.get("viewBox")
    assert "href" not in drawing.read_text(encoding="utf-8")


def test_every_page_is_in_the_site_or_kept_off_it() -> None:
    """Decisions, architecture and texts for other projects stay in the repository."""
    listed = re.findall(r"(?<=: )[\w/-]+\.md", SITE)
    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")}
    kept_off = {page for page in pages if re.match(OFF_THE_SITE, page)}
    assert pages - kept_off == set(listed)
    assert len(listed) == len(set(listed))
    assert {"design.md", "adr/0001-flower.md", "upstream/README.md"} <= kept_off


def test_no_page_of_the_site_links_to_one_that_is_kept_off_it() -> None:
    found = [
        f"{page.name}: {target}"
        for page in DOCS.glob("*.md")
        if not re.match(OFF_THE_SITE, page.name)
        for target in links(page)
        if re.match(OFF_THE_SITE, target)
    ]
    assert found == []


def test_the_checks_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One heading, ε and `code`\n[a](other.md) ![b](#one) [c](http://x) "
        "`[d](none.md)`\n"
    )
    assert [wrong(page, target) for target in links(page)] == [
        "no such file",
        "no such heading",
        "no address of the web, or not https",
    ]
    assert site_anchor("From 3 sites, and `to` 300") == hub_anchor(
        "From 3 sites, and `to` 300"
    )
    assert site_anchor("From 3 sites, and `to` 300") == "from-3-sites-and-to-300"
    assert _MACHINE.search("see /home/me/data")
    assert not _MACHINE.search("see /tmp/run and sites/home/x")


def test_a_line_that_begins_with_a_sign_is_not_a_bullet() -> None:
    """`+ 2.4 ± 1.4` at the beginning of a line is rendered as a bullet, and the sign is
    lost.
    """
    found = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in PAGES
        for line in _FENCED.sub("", page.read_text(encoding="utf-8")).splitlines()
        if re.match(r"\s*([+*] +[\d.]|- +[\d.]+ ±)", line)
    ]
    assert found == []


def test_pages_say_for_whom_they_are() -> None:
    """The first paragraph of a page names its reader."""
    pages = [
        page
        for page in sorted((ROOT / "docs").glob("*.md"))
        if page.name not in ("index.md", "changelog.md")
    ]
    first = {
        page.name: page.read_text(encoding="utf-8").split("\n\n")[1] for page in pages
    }
    assert {
        name: text[:80]
        for name, text in first.items()
        if not re.match(r"\*?For ", text)
    } == {}


def test_facts_at_the_top_are_those_of_the_package() -> None:
    """Python, licence and maturity, in README and overview."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    versions = [
        text.rpartition(" ")[2]
        for text in project["classifiers"]
        if ":: Python :: 3." in text
    ]
    alpha = [text for text in project["classifiers"] if "Alpha" in text]
    facts = f"Python {versions[0]} to {versions[-1]} · Linux · {project['license']} · {'alpha' if alpha else 'stable'}"
    assert all(
        facts in (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "docs/index.md")
    )

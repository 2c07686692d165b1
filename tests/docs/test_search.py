"""The search of the site finds the right page first.

The ranking is that of the site itself: Node runs the search worker of the theme on the
text of the pages.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEARCH = ROOT / "tests" / "helpers" / "site_search.js"
FENCE = re.compile(r"^ *```\w*[^\n]*$", flags=re.MULTILINE)
BLOCK = re.compile(r"^ *```.*?^ *```", flags=re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", flags=re.MULTILINE)

QUESTIONS = {
    "choose epsilon": "choosing-epsilon.md",
    "glossary": "glossary.md",
    "cite": "index.md",
    "NVFlare": "alternatives.md",
    "folder per hospital": "own-data.md",
    "install": "install.md",
    "exit code": "errors.md",
    "which method": "when-not.md",
    "onnx": "models.md",
    "gpu": "gpu.md",
    "learning rate": "own-network.md",
    "secure aggregation": "secure-sums.md",
    "restore backup": "sites-operate.md",
    "upgrade": "sites-operate.md",
    "threat model": "proofs.md",
    "mlflow": "results-of-a-run.md",
}


def listed() -> list[str]:
    """The written pages of the site, and not what it makes from code and changelog."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = re.findall(r"(?<=: )[\w-]+\.md", nav)
    return [page for page in found if page != "changelog.md"]


def documents(page: str, text: str) -> list[dict[str, str]]:
    """What the site indexes: a document for each heading, with the text below it."""
    headings = list(HEADING.finditer(BLOCK.sub(blank, text)))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    found = []
    for number, (heading, end) in enumerate(zip(headings, ends, strict=True)):
        place = page if number == 0 else f"{page}#{number}"
        title = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading[1])
        body = re.sub(r"\]\([^)]*\)|[`*|\[]", " ", text[heading.end() : end])
        found.append({"location": place, "title": title, "text": FENCE.sub("", body)})
    return found


def blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


@cache
def all_documents() -> list[dict[str, str]]:
    return [
        document
        for page in listed()
        for document in documents(page, (ROOT / "docs" / page).read_text("utf-8"))
    ]


@cache
def ranked_by_the_site() -> dict[str, list[str]]:
    """The pages that each question finds, the best first."""
    spec = importlib.util.find_spec("material")
    node = shutil.which("node")
    if spec is None or spec.origin is None or node is None:
        pytest.skip("the ranking of the site needs Node and the theme")
    scripts = Path(spec.origin).parent / "templates" / "assets" / "javascripts"
    (worker,) = scripts.glob("workers/search.*.min.js")
    asked = json.dumps({"docs": all_documents(), "queries": list(QUESTIONS)})
    done = subprocess.run(
        [node, str(SEARCH), str(worker)],
        input=asked,
        text=True,
        capture_output=True,
        check=True,
    )
    return dict(zip(QUESTIONS, json.loads(done.stdout), strict=True))


def relevance(document: dict[str, str], question: str) -> float:
    """A plain measure: how large a share of title and text begins with each word."""
    title = re.findall(r"\w+", document["title"].lower())
    text = re.findall(r"\w+", document["text"].lower())
    total = 0.0
    for word in question.lower().split():
        in_title = sum(one.startswith(word) for one in title) / len(title)
        in_text = sum(one.startswith(word) for one in text) / (50 + len(text))
        has_word = in_title > 0 or in_text > 0
        total += min(1, 4 * in_title) + in_text + 0.3 * has_word
    return total


@pytest.mark.parametrize(("question", "page"), QUESTIONS.items())
def test_the_site_finds_the_right_page_first(question: str, page: str) -> None:
    assert ranked_by_the_site()[question][:1] == [page]


@pytest.mark.parametrize(("question", "page"), QUESTIONS.items())
def test_a_plain_measure_finds_the_right_page_first(question: str, page: str) -> None:
    """Also where there is no Node."""
    best = max(all_documents(), key=lambda document: relevance(document, question))
    assert best["location"].partition("#")[0] == page


def test_headings_in_code_are_no_documents() -> None:
    text = "# One\nwords\n```toml\n# not a heading\n```\n## Two `code`\nmore\n"
    found = documents("a.md", text)
    assert [one["title"] for one in found] == ["One", "Two code"]
    assert [one["location"] for one in found] == ["a.md", "a.md#1"]

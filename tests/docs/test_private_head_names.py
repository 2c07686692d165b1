"""Each setting of the private head has one name, one figure and one record.

The names are defined in a table of docs/private-head.md. Two figures never bear the
same words: a row of a table that has an accuracy of the private head has a name too.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "studies" / "results"
DEFINITIONS = ROOT / "docs" / "private-head.md"
HEADING = "## Settings by name"
# Their rows are of other methods' settings, or of data sets that the table itself names.
ELSEWHERE = ("tables.md", "tuning.md", "design.md", "methods.md", "secure-sums.md")

# keys of the record, without their last part, a split or a draw of noise
ARMS = {
    "lite0-secure": "secure, 20 sites|1|0|",
    "lite0-20": "local, 20, class moments|1|",
    "lite0-80": "local, 80, class moments|1|",
    "lite0-10000": "local, 10000, class embedding, k = 32|1|",
    "lite0-500": "α = 0.1|private head|",
    "resnet8-secure": "secure, 20 sites|1|",
    "resnet8-20": "local, 20, class moments|1|",
    "resnet8-80": "local, 80, class moments|1|",
    "resnet8-10000": "local, 10000, class embedding, k = 32|1|",
    "resnet8-20-means": "20|private head, ε = 1|",
    "resnet8-80-means": "80|private head, ε = 1|",
    "agnews-secure": "AG News|private head, ε = 1, secure|",
    "agnews-local": "AG News|private head, ε = 1|",
    "xrays-secure": "pneumonia|private head, ε = 1, secure|",
    "xrays-local": "pneumonia|private head, ε = 1|",
    "amazon": "Amazon reviews|private head, ε = 1|",
    "fashion": "Fashion-MNIST|private head, ε = 1|",
    "network-0.1": "α = 0.1|private head|",
    "network-1": "α = 1|private head|",
    "network-500": "10,000 images|private head, ε = 1|",
    "three-networks": "three architectures|private head|",
}
OTHER_EPSILON = "ε = 0.1"  # a sentence may be about this one
ACCURACY = re.compile(r"(?<![\d.])\d\d\.\d(?!\d)")


def definitions() -> dict[str, tuple[str, str]]:
    """The figure and the record of each name."""
    text = DEFINITIONS.read_text(encoding="utf-8")
    section = text.split(HEADING)[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    found: dict[str, tuple[str, str]] = {}
    record = ""
    for row in rows:
        name = row[0].strip("`")
        assert name not in found
        if row[6] != "the same":
            record = row[6]
        found[name] = (row[5], record)
    return found


def pages() -> dict[str, str]:
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    defined = texts[DEFINITIONS.name]
    section = defined.split(HEADING)[1].split("\n## ")[0]
    return texts | {DEFINITIONS.name: defined.replace(section, "")}


def last(value: Any) -> float:
    """The accuracy after the last round of a cell, or of a draw of noise."""
    return float(value["curve"][-1] if isinstance(value, dict) else value[0])


def measured(name: str, record: str) -> float:
    if record == "demo":
        with (RESULTS / "demo.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        values = [
            float(row["accuracy"])
            for row in rows
            if row["label"] == "Private head" and row["round"] == "1"
        ]
    else:
        stored = json.loads((RESULTS / f"{record}.json").read_text("utf-8"))
        cells = stored.get("cells", stored)
        values = [
            last(value)
            for key, value in cells.items()
            if key.startswith(ARMS[name]) and not key.startswith("chosen")
        ]
    assert values, f"{record} has no {name}"
    return 100 * float(np.mean(values))


@pytest.mark.parametrize("name", definitions())
def test_the_figure_of_a_name_is_that_of_its_record(name: str) -> None:
    figure, record = definitions()[name]
    assert f"{measured(name, record):.1f}" == figure


@pytest.mark.parametrize("name", definitions())
def test_a_name_has_one_figure_everywhere(name: str) -> None:
    figure, _ = definitions()[name]
    uses = [
        (page, sentence)
        for page, text in pages().items()
        for line in text.splitlines()
        for sentence in line.split(". ")
        if f"`{name}`" in sentence and ACCURACY.search(sentence)
    ]
    assert uses, f"nothing uses {name}"
    wrong = [
        use
        for use in uses
        if figure not in ACCURACY.findall(use[1]) and OTHER_EPSILON not in use[1]
    ]
    assert wrong == []


def test_every_row_with_an_accuracy_of_the_private_head_has_a_name() -> None:
    names = definitions()
    nameless = [
        (page, line)
        for page, text in pages().items()
        if page not in ELSEWHERE
        for line in text.splitlines()
        if re.match(r"\| \W*private[ -]head", line, re.IGNORECASE)
        and ACCURACY.search(line)
        and "start" not in line
        and not any(f"`{name}`" in line for name in names)
    ]
    assert nameless == []

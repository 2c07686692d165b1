"""Every number of README and overview is a mean over several seeds of a stored record.

The demo's record is `fedaux demo --seeds 5 --out runs/demo`, then
`cp runs/demo/runs.csv studies/results/demo.csv`. Once it is there, the overview shows
its table.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from studies.readme_example import EXAMPLE

from fedaux.config.method_facts import all_facts
from fedaux.config.schema import Config
from fedaux.runs.arguments import make_config
from helpers.docs_pages import blocks

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "studies" / "results"
DEMO = RESULTS / "demo.csv"
README = (ROOT / "README.md").read_text(encoding="utf-8")
OVERVIEW = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
FEWEST_SEEDS = 3
SPREAD = r"\d+\.\d ± \d+\.\d"

TRAINED = {  # arms of studies/encoders.py at α = 0.01
    "FedAvg": "FedAvg+P, class moments, private-head start",
    "SCAFFOLD": "SCAFFOLD+P, class moments, private-head start",
    "FedET": "FedET+P, class moments, private-head start",
    "FedAUX": "FedAUX, ε = 1, class moments, private-head start",
}
HEADS = {  # keys of studies/secure_sums.py: arm, ε and draw of noise
    "**private head**, local noise, `lite0-20`": "local, 20, class moments|1|{draw}|0",
    "**private head**, secure sum, `lite0-secure`": "secure, 20 sites|1|0|{draw}",
}


def record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def spread(values: list[float]) -> str:
    """Mean and sample standard deviation in per cent, as the pages have them."""
    assert len(values) >= FEWEST_SEEDS
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def splits(cells: Any, arm: str) -> list[list[float]]:
    """The curve of each split."""
    return [cells[key]["curve"] for key in sorted(cells) if re.match(arm, key)]


def trained_rows() -> list[str]:
    cells = record("heads-published.json")["cells"]
    found = []
    for name, arm in TRAINED.items():
        curves = splits(cells, re.escape(f"α = 0.01|{arm}|"))
        rounds = [spread([curve[t - 1] for curve in curves]) for t in (1, 5, 20)]
        found.append(f"| {name} | {' | '.join(rounds)} |")
    return found


def head_rows() -> list[str]:
    draws = record("secure-sums-published.json")
    found = []
    for name, key in HEADS.items():
        values = [draws[key.format(draw=draw)][0] for draw in range(FEWEST_SEEDS)]
        found.append(f"| {name} | {spread(values)} |")
    ridge = splits(
        record("heads-published.json")["cells"], re.escape("α = 0.01|ridge|")
    )
    return [*found, f"| ridge regression | {spread([curve[-1] for curve in ridge])} |"]


def networks() -> list[str]:
    """Means of rounds 1 to 30, and their difference with its interval."""
    cells = record("regimes-cifar10.json")["cells"]
    means = {
        arm: [
            float(np.mean(curve[:30]))
            for curve in splits(cells, re.escape(f"α = 0.1|{arm}|") + r"\d$")
        ]
        for arm in ("FedAUX", "SCAFFOLD")
    }
    ahead = np.subtract(means["FedAUX"], means["SCAFFOLD"])
    t_of_three = 4.303  # Student's t, 95 %, two degrees of freedom
    assert len(ahead) == FEWEST_SEEDS
    half = t_of_three * np.std(ahead, ddof=1) / np.sqrt(len(ahead))
    return [
        f"mean accuracy of rounds 1 to 30 is {spread(means['FedAUX'])} % with FedAUX",
        f"{spread(means['SCAFFOLD'])} % with SCAFFOLD",
        f"difference {100 * ahead.mean():.1f} ± {100 * half:.1f}, 95 % interval",
    ]


def architectures() -> list[str]:
    """Rows of a record that is a table over five seeds."""
    table = (RESULTS / "mixed-digits.md").read_text(encoding="utf-8")
    assert "5 rounds, 5 seeds" in table
    first = dict(
        re.findall(rf"^\| ([\w+]+) \| ({SPREAD}) \|", table, flags=re.MULTILINE)
    )
    return [
        f"FedAUX reaches {first['FedAUX']} % after one round",
        f"averaging per architecture reaches {first['FedAvg+P']} %",
    ]


def random_heads() -> list[str]:
    """The first round without the private head, in the setting of the table."""
    cells = record("heads-published.json")["cells"]
    after_one = [
        spread([curve[0] for curve in splits(cells, re.escape(f"α = 0.01|{arm}|"))])
        for arm in ("FedAvg+P", "SCAFFOLD+P")
    ]
    reached = " and ".join(after_one)
    return [f"FedAvg and SCAFFOLD reach {reached} % after one round"]


def hospitals() -> list[str]:
    """The mean of four hospitals over five draws of noise."""
    scores = record("tables.json")
    found = [
        spread(
            [
                row["site_accuracy"]
                for key, row in scores.items()
                if key.startswith(f"Fed-Heart, no public rows|{arm}|")
            ]
        )
        for arm in ("secure, ε = 1", "pooled logistic regression")
    ]
    return [
        f"{found[0]} % at four hospitals (ε = 1)",
        f"logistic regression on pooled data reaches {found[1]} %",
    ]


def demo_rows() -> list[str]:
    """The demo's table after the first and the last round."""
    curves: dict[str, dict[str, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    with DEMO.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            accuracy = float(row["accuracy"])
            curves[row["label"]][row["seed"]][int(row["round"])] = accuracy
    found = []
    for label, seeds in curves.items():
        cells = [
            spread([curve[t] for curve in seeds.values()])
            for t in (1, 5)
            if all(t in curve for curve in seeds.values())
        ]
        name = ", `digits`" if label == "Private head" else ""
        found.append(f"| {label}{name} | {' | '.join(cells)} |")
    return found


def example() -> list[str]:
    """The Python example, as it stands, over five seeds."""
    accuracies = record("readme-example.json")["accuracies"]
    return [f"untuned ({spread(accuracies)} %, "]


def test_the_example_is_what_was_recorded() -> None:
    """The block of the README makes the configuration of its record."""
    (block,) = [one for one in blocks(README) if one.language == "python"]
    asked: list[Config] = []
    names = {"fedaux": SimpleNamespace(run=recorder(asked))}
    exec(block.text.replace("import fedaux", ""), names)
    assert asked == [make_config("fedaux", **EXAMPLE)]


def recorder(asked: list[Config]) -> Callable[..., Any]:
    """Stands in for `fedaux.run`, and keeps what it was asked for."""

    def run(method: str, **arguments: Any) -> Any:
        asked.append(make_config(method, **arguments))
        return SimpleNamespace(save=lambda folder: None)

    return run


def shared() -> list[str]:
    return [*trained_rows(), *head_rows()]


@pytest.mark.parametrize("page", [README, OVERVIEW], ids=["README", "overview"])
def test_the_table_of_heads_is_that_of_the_records(page: str) -> None:
    assert [row for row in shared() if row not in page] == []


def test_the_sentences_of_the_readme_are_those_of_the_records() -> None:
    told = [*networks(), *architectures(), *random_heads(), *hospitals(), *example()]
    assert [words for words in told if words not in README] == []
    assert [words for words in random_heads() if words not in OVERVIEW] == []


def test_the_overview_shows_the_demo_once_it_is_recorded() -> None:
    if not DEMO.exists():
        assert "FedAvg+P" not in OVERVIEW
        return
    assert [row for row in demo_rows() if row not in OVERVIEW] == []


@pytest.mark.parametrize("page", [README, OVERVIEW], ids=["README", "overview"])
def test_no_other_accuracy_is_claimed(page: str) -> None:
    known = " ".join(
        [
            *shared(),
            *networks(),
            *architectures(),
            *random_heads(),
            *hospitals(),
            *example(),
            *(demo_rows() if DEMO.exists() else []),
        ]
    )
    claimed = re.findall(rf"{SPREAD}|(?<![±.\d] )(?<![\d.])[\d.]+ ?%", page)
    bare = [one for one in claimed if "±" not in one and one != "95 %"]
    assert bare == [], "a percentage without its spread"
    assert [one for one in claimed if "±" in one and one not in known] == []


def test_the_readme_is_short_and_counts_the_methods() -> None:
    assert len(README.split()) <= 600
    others = len(all_facts()) - len(["fedaux", "private-head"])
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(changes.split()) <= 300
    assert f"[{others} other methods]" in README
    assert f"[{others} others]" in changes

"""How accurate a test at the sites is: the error that noise makes, and how often the
95 % intervals contain the truth, by number of held-out records.

    python -m studies.site_tests [DRAWS [CASE ...]]

Each draw is a test of a model with synthetic scores: the difference of logits of each
class is normal, with standard deviation 2. In the usual case, 40 % of the records are
events, which are of the second class, and the counts get the noise of exactly one look.
In the hard cases, few records are events, nearly all answers are right, and the counts
get the noise of a secure sum of three sites. The noise is continuous here, so that a
seed repeats it. At 2²⁰ steps a record it cannot be told from the discrete noise of a
site. With the names of cases, the others keep the rows of the record.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fedaux.config.sections import FederationConfig, PrivacyConfig
from fedaux.core.noisy_metrics import (
    Estimate,
    estimates,
    hits_of_scores,
    metrics,
)
from fedaux.messages import Tallies
from fedaux.messages.tallies import OF_ANSWERS, OF_HITS, OF_SCORES
from fedaux.privacy.looks import scale_of
from fedaux.runs.look_plan import noise_of_sum
from fedaux.server.site_test import tallies_of_test

DRAWS = 1000
EPSILON = 1.0
CLASSES = 2
POPULATION = 1e6  # records whose figures are the truth
DEVIATION = 2.0  # of the difference of logits


@dataclass(frozen=True)
class Case:
    """Records and a model, in tests with so much noise.

    Attributes:
        name: What is special about it.
        events: The share of records of the second class.
        means: Of the difference of logits, for each class.
        records: How many are held out, one test for each number.
        noise: The noise, as a multiple of that of one look.
    """

    name: str
    events: float
    means: tuple[float, float]
    records: tuple[int, ...]
    noise: float = 1.0


THREE_SITES = noise_of_sum(3, FederationConfig(secure=True))
CASES = (
    Case("40 % events", 0.4, (-1.8, 1.8), (230, 1_600, 2_000, 16_000)),
    # 97 % of the others are classified rightly, and 70 % of the events
    Case("10 % events", 0.1, (-3.76, 1.05), (230, 2_000, 16_000), THREE_SITES),
    # 98.9 % of the others, and half of the events
    Case("2 % events", 0.02, (-4.58, 0.0), (230, 2_000, 16_000), THREE_SITES),
)
FIGURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "average_precision": "average precision",
    "calibration_error": "calibration error",
}
RESULTS = Path(__file__).parent / "results"

Numbers = NDArray[np.float64]
Counts = dict[str, Numbers]


def shares(case: Case, tallies: Tallies) -> Counts:
    """Return the probability of each bin of each tally."""
    edges = np.array([-math.inf, *tallies.by_name[OF_SCORES].edges, math.inf])
    of_classes = (1 - case.events, case.events)
    by_class = [
        share * np.diff(norm.cdf(edges, mean, DEVIATION))
        for share, mean in zip(of_classes, case.means, strict=True)
    ]
    return counts_of(np.concatenate(by_class), tallies)


def counts_of(scores: Numbers, tallies: Tallies) -> Counts:
    """Return all tallies of records by class and bin of their score; one of the edges
    is where the answer changes.
    """
    edges = tallies.by_name[OF_SCORES].edges
    hits = np.bincount(hits_of_scores(edges), scores, 4)
    answers = hits.reshape(2, 2).sum(axis=0)
    return {OF_ANSWERS: answers, OF_HITS: hits, OF_SCORES: scores}


def exact_figures(counts: Counts, tallies: Tallies) -> dict[str, float]:
    """Return the figures of counts without noise."""
    of_figures = metrics(tallies.by_name[OF_SCORES].edges)
    with np.errstate(invalid="ignore"):
        return {
            name: float(metric(counts[tally]))
            for name, (tally, metric) in of_figures.items()
        }


def noisy(
    counts: Counts, deviation: dict[str, float], rng: np.random.Generator
) -> dict[str, list[float]]:
    return {
        name: (values + rng.normal(0, deviation[name], len(values))).tolist()
        for name, values in counts.items()
    }


def tests(
    case: Case, records: int, draws: int, scale: float, tallies: Tallies
) -> Iterator[tuple[dict[str, float], dict[str, Estimate]]]:
    """Yield the exact figures and the estimates of each drawn test."""
    rng = np.random.default_rng(records)
    edges = tallies.by_name[OF_SCORES].edges
    truth = shares(case, tallies)[OF_SCORES]
    deviation = {
        name: case.noise * scale / tally.steps
        for name, tally in tallies.by_name.items()
    }
    for _ in range(draws):
        drawn = rng.multinomial(records, truth).astype(np.float64)
        counts = counts_of(drawn, tallies)
        values = noisy(counts, deviation, rng)
        yield exact_figures(counts, tallies), estimates(values, deviation, edges)


def measure(
    case: Case, records: int, draws: int, scale: float, tallies: Tallies
) -> list[dict[str, Any]]:
    """Return a row for each figure."""
    probabilities = shares(case, tallies)
    everybody = {name: POPULATION * part for name, part in probabilities.items()}
    truth = exact_figures(everybody, tallies)
    drawn = list(tests(case, records, draws, scale, tallies))
    rows = []
    for name in FIGURES:
        pairs = [
            (exact[name], figures[name]) for exact, figures in drawn if name in figures
        ]
        row: dict[str, Any] = {
            "case": case.name,
            "records": records,
            "figure": name,
            "draws": draws,
            "told": len(pairs),
        }
        if len(pairs) > draws / 2:
            # without any event, some figures have no exact value
            errors = [
                found.value - exact for exact, found in pairs if not math.isnan(exact)
            ]
            held = [found.low <= truth[name] <= found.high for _, found in pairs]
            widths = [found.high - found.low for _, found in pairs]
            row |= {
                "truth": truth[name],
                "noise": float(np.std(errors, ddof=1)),
                "bias": float(np.mean(errors)),
                "coverage": float(np.mean(held)),
                "width": float(np.mean(widths)),
            }
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]], deviation: float) -> str:
    lines = [
        "`python -m studies.site_tests`: tests of synthetic scores for each number of "
        f"records, two classes, ε = {EPSILON:g}, δ = 1e-5, "
        "replace-one. With 40 % events, the noise is that of exactly one look, and on "
        f"a count of right answers it has standard deviation {deviation:.2f}. With "
        f"fewer, it is that of a secure sum of three sites, {THREE_SITES:.2f} times as "
        "much. "
        "Noise is the standard deviation of the error that it makes; the interval is "
        "the 95 % interval, its coverage the share of tests in which it contains the "
        "truth. A figure that fewer than half of the tests tell has a dash.",
        "",
        "| case | held-out records | figure | truth | noise | mean width of the interval | "
        "coverage | tests that tell it |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = ["–"] * 4
        if "noise" in row:
            cells = [
                f"{row['truth']:.4f}",
                f"{row['noise']:.4f}",
                f"{row['width']:.4f}",
                f"{row['coverage']:.1%}",
            ]
        name = FIGURES[row["figure"]]
        told = f"{row['told']:,} of {row['draws']:,}"
        row_cells = [row["case"], f"{row['records']:,}", name, *cells, told]
        lines.append(f"| {' | '.join(row_cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    names = sys.argv[2:] or [case.name for case in CASES]
    record = RESULTS / "site-tests.json"
    tallies = tallies_of_test(CLASSES)
    scale = scale_of(
        tallies, tallies.size(CLASSES), PrivacyConfig(look_epsilon=EPSILON)
    )
    deviation = scale / tallies.by_name[OF_ANSWERS].steps
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if case.name not in names:
            known = json.loads(record.read_bytes())["rows"]
            rows += [row for row in known if row["case"] == case.name]
            continue
        for records in case.records:
            rows += measure(case, records, draws, scale, tallies)
            print(table(rows, deviation), flush=True)
    found = {"epsilon": EPSILON, "deviation": deviation, "rows": rows}
    record.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "site-tests.md").write_text(table(rows, deviation), "utf-8")


if __name__ == "__main__":
    main()

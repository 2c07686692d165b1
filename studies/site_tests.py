"""How accurate a test at the sites is: the error that noise makes, and how often the
95 % intervals contain the truth, by number of held-out records.

    python -m studies.site_tests [DRAWS]

Each draw is a test of a model with synthetic scores: 40 % of the records are of the
second class, and the difference of logits is normal with mean ±1.8 and standard
deviation 2. Its counts get the noise of one look of all sites together (a secure sum in
which every site is honest). The noise is continuous here, so that a seed repeats it. At
2²⁰ steps a record it cannot be told from the discrete noise of a site.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fedaux.config.sections import PrivacyConfig
from fedaux.core.noisy_metrics import (
    Estimate,
    estimates,
    hits_of_scores,
    metrics,
)
from fedaux.messages import Tallies
from fedaux.messages.tallies import OF_ANSWERS, OF_HITS, OF_SCORES
from fedaux.privacy.looks import scale_of
from fedaux.server.site_test import tallies_of_test

RECORDS = (230, 1_600, 2_000, 16_000)
DRAWS = 1000
EPSILON = 1.0
CLASSES = 2
EVENTS = 0.4  # share of records of the second class
POPULATION = 1e6  # records whose figures are the truth
MEAN, DEVIATION = 1.8, 2.0  # of the difference of logits
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


def shares(tallies: Tallies) -> Counts:
    """Return the probability of each bin of each tally."""
    edges = np.array([-math.inf, *tallies.by_name[OF_SCORES].edges, math.inf])
    by_class = [
        share * np.diff(norm.cdf(edges, mean, DEVIATION))
        for share, mean in ((1 - EVENTS, -MEAN), (EVENTS, MEAN))
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
    records: int, draws: int, scale: float, tallies: Tallies
) -> Iterator[tuple[dict[str, float], dict[str, Estimate]]]:
    """Yield the exact figures and the estimates of each drawn test."""
    rng = np.random.default_rng(records)
    edges = tallies.by_name[OF_SCORES].edges
    truth = shares(tallies)[OF_SCORES]
    deviation = {name: scale / tally.steps for name, tally in tallies.by_name.items()}
    for _ in range(draws):
        drawn = rng.multinomial(records, truth).astype(np.float64)
        counts = counts_of(drawn, tallies)
        values = noisy(counts, deviation, rng)
        yield exact_figures(counts, tallies), estimates(values, deviation, edges)


def measure(
    records: int, draws: int, scale: float, tallies: Tallies
) -> list[dict[str, Any]]:
    """Return a row for each figure."""
    everybody = {name: POPULATION * part for name, part in shares(tallies).items()}
    truth = exact_figures(everybody, tallies)
    drawn = list(tests(records, draws, scale, tallies))
    rows = []
    for name in FIGURES:
        pairs = [
            (exact[name], figures[name]) for exact, figures in drawn if name in figures
        ]
        row: dict[str, Any] = {
            "records": records,
            "figure": name,
            "draws": draws,
            "told": len(pairs),
        }
        if len(pairs) > draws / 2:
            errors = [found.value - exact for exact, found in pairs]
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


def table(rows: list[dict[str, Any]], draws: int, deviation: float) -> str:
    lines = [
        f"`python -m studies.site_tests {draws}`: {draws} tests of synthetic scores "
        f"for each number of records, two classes, ε = {EPSILON:g}, δ = 1e-5, "
        "replace-one, noise of one look (of one secure sum, or of one site). The "
        f"noise on a count of right answers has standard deviation {deviation:.2f}. "
        "Noise is the standard deviation of the error that it makes; the interval is "
        "the 95 % interval, its coverage the share of tests in which it contains the "
        "truth. A figure that fewer than half of the tests tell has a dash.",
        "",
        "| held-out records | figure | truth | noise | mean width of the interval | "
        "coverage | tests that tell it |",
        "| --- | --- | --- | --- | --- | --- | --- |",
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
        lines.append(
            f"| {row['records']:,} | {name} | {' | '.join(cells)} | {row['told']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    tallies = tallies_of_test(CLASSES)
    scale = scale_of(
        tallies, tallies.size(CLASSES), PrivacyConfig(look_epsilon=EPSILON)
    )
    deviation = scale / tallies.by_name[OF_ANSWERS].steps
    rows: list[dict[str, Any]] = []
    for records in RECORDS:
        rows += measure(records, draws, scale, tallies)
        print(table(rows, draws, deviation), flush=True)
    found = {"draws": draws, "epsilon": EPSILON, "deviation": deviation, "rows": rows}
    (RESULTS / "site-tests.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "site-tests.md").write_text(table(rows, draws, deviation), "utf-8")


if __name__ == "__main__":
    main()

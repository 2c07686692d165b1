"""How much does the kind of public data decide about a private head? Twenty newsgroups,
features of all-MiniLM-L6-v2, one secure sum at ε = 1 and 3, four sets of public texts.

    # features take about 20 minutes, once. It goes on where it was stopped
    python -m studies.public_texts
    python -m studies.public_texts --table    # the table only

The package's own scorer releases 4,400 posts and computes the head, which is tested on
1,600 others. Values are means over five draws of noise, ± their standard deviation.
Ridge regression without protection has no noise, and needs no public texts.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.client.far_features import mean_direction
from fedaux.client.summaries import summarise
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import PrivacyConfig
from fedaux.core.io import cache_folder
from fedaux.data.records import Records
from fedaux.methods.analytic_heads import FeatureMoments, ridge_head
from fedaux.models import build
from fedaux.models.inference import predict
from fedaux.privacy.mechanism import release
from fedaux.scoring.base import Reference
from fedaux.scoring.class_moments import ClassMomentsScorer
from fedaux.scoring.registry import make_scorer

RESULTS = Path(__file__).parent / "results" / "public-texts.json"
ROOT = Path(os.environ.get("FEDAUX_DATA", "../shared/data"))
EPSILONS = (1.0, 3.0)
RIDGE = "ridge, unprotected"
DRAWS_OF_NOISE = 5
CLASSES = 20
PRIVATE, TESTED, ALL_POSTS = 4400, 6000, 9000
BLOCK = 500  # texts whose features are kept together
FILES = {  # and how many of their rows are used
    "posts": ("newsgroups20_train.csv.gz", ALL_POSTS),
    "novels": ("books_unlabelled.csv.gz", 3000),
    "news": ("ag_news_train.csv.gz", 2500),
    "reviews": ("amazon_reviews.csv.gz", 2000),
}
PUBLIC = {
    "3,000 sentences of old novels": ("novels",),
    "2,500 news reports, 2,000 reviews, and the novels": ("news", "reviews", "novels"),
    "2,500 news reports and 2,000 reviews": ("news", "reviews"),
    "3,000 unlabelled posts": (),
}

Floats = NDArray[np.floating]
Labels = NDArray[np.int64]


def read_rows(name: str) -> list[dict[str, str]]:
    file, count = FILES[name]
    with gzip.open(ROOT / file, "rt", encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    order = np.random.default_rng(0).permutation(len(rows))[:count]
    return [rows[index] for index in order]


def features(name: str, rows: list[dict[str, str]]) -> Floats:
    """Features of the published encoder, each block of texts computed once."""
    folder = cache_folder() / "public-texts"
    folder.mkdir(parents=True, exist_ok=True)
    encoder = build(PrototypeSpec("encoder"), (), 2, 0).features
    encoder.restore()  # type: ignore[operator]
    parts = []
    for first in range(0, len(rows), BLOCK):
        path = folder / f"{name}-{first}.npy"
        if not path.exists():
            block = [row["text"] for row in rows[first : first + BLOCK]]
            texts = np.array(block, object)
            np.save(path, predict(encoder.eval(), Records(texts)))
        parts.append(np.asarray(np.load(path)))
    return np.concatenate(parts)


def accuracies(
    public: Floats, posts: Floats, labels: Labels, epsilon: float
) -> list[float]:
    """Test accuracy of the private head with each draw of noise."""
    found = []
    for seed in range(DRAWS_OF_NOISE):
        privacy = PrivacyConfig(
            scorer="class-moments", epsilon=epsilon, embedding_dim=0, unsafe_seed=seed
        )
        scorer = make_scorer(privacy, CLASSES, 1, PRIVATE)
        assert isinstance(scorer, ClassMomentsScorer)
        arrays = scorer.publish(public)
        summary = summarise(
            scorer,
            arrays,
            posts[:PRIVATE],
            labels[:PRIVATE],
            privacy.adjacency,
            PRIVATE,
            np.ones(PRIVATE),
        )
        reference = Reference(scorer.embed(arrays, public).astype(np.float64))
        noisy = release(summary, "all sites", privacy)
        weights, bias = scorer.head(arrays, reference, [noisy])
        tested = posts[PRIVATE:TESTED]
        predicted = (tested @ weights.T + bias).argmax(axis=1)
        found.append(float((predicted == labels[PRIVATE:TESTED]).mean()))
    return found


def ridge_accuracy(posts: Floats, labels: Labels) -> float:
    """Test accuracy of the head that ridge regression computes from exact sums."""
    x = posts[:PRIVATE].astype(np.float64)
    one_hot = np.eye(CLASSES)[labels[:PRIVATE]]
    head = ridge_head(FeatureMoments(one_hot.T @ x, one_hot.sum(axis=0), x.T @ x))
    tested = posts[PRIVATE:TESTED]
    predicted = (tested @ head.weight.T + head.bias).argmax(axis=1)
    return float((predicted == labels[PRIVATE:TESTED]).mean())


def direction(public: Floats, posts: Floats, labels: Labels) -> float:
    """The length of the mean direction of the private records in the public map."""
    scorer = make_scorer(PrivacyConfig(embedding_dim=32), CLASSES)
    arrays = scorer.publish(public)
    found = mean_direction(arrays, posts[:PRIVATE], labels[:PRIVATE])
    assert found is not None
    return math.sqrt(max(0.0, found.found))


def measure() -> dict[str, Any]:
    rows = read_rows("posts")
    names = sorted({row["label"] for row in rows})
    labels = np.array([names.index(row["label"]) for row in rows])
    posts = features("posts", rows[:TESTED])
    results: dict[str, Any] = read_results()
    if RIDGE not in results:
        results[RIDGE] = {"accuracy": ridge_accuracy(posts, labels)}
        save(results)
    for words, parts in PUBLIC.items():
        if words in results:
            continue
        if parts:
            public = np.concatenate([features(part, read_rows(part)) for part in parts])
        else:
            public = features("posts", rows)[TESTED:]
        results[words] = {
            "direction": direction(public, posts, labels),
            **{
                f"{epsilon:g}": accuracies(public, posts, labels, epsilon)
                for epsilon in EPSILONS
            },
        }
        print(words, results[words], flush=True)
        save(results)
    return results


def read_results() -> dict[str, Any]:
    if not RESULTS.is_file():
        return {}
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def save(results: dict[str, Any]) -> None:
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    lines = [
        "| public texts | mean direction | ε = 1 | ε = 3 |",
        "| --- | --- | --- | --- |",
    ]
    for words in PUBLIC:
        found = results[words]
        cells = [
            f"{100 * np.mean(found[key]):.1f} ± {100 * np.std(found[key], ddof=1):.1f}"
            for key in ("1", "3")
        ]
        lines.append(f"| {words} | {found['direction']:.2f} | {' | '.join(cells)} |")
    accuracy = f"{100 * results[RIDGE]['accuracy']:.1f}"
    lines.append(f"| {RIDGE} | | {accuracy} | {accuracy} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="the table only")
    only_table = parser.parse_args().table
    results = read_results() if only_table else measure()
    page = f"{__doc__}\n\nAccuracy in %.\n\n{table(results)}\n"
    RESULTS.with_suffix(".md").write_text(f"# {page}", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()

"""The paper's two toys: teachers weighted by a kernel density on Iris, and scores
against the weights of theory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.client.summaries import summarise
from fedaux.config.sections import PrivacyConfig
from fedaux.core.io import write_atomically
from fedaux.data.partition import dirichlet
from fedaux.privacy.mechanism import release
from fedaux.report.tables import markdown
from fedaux.report.terminal import plural
from fedaux.scoring.base import PublicScorer, Reference
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.teacher_weights import teacher_weights

Matrix = NDArray[np.float64]
CLIENTS = 3
IRIS_ALPHA = 0.1
GAUSSIAN_RECORDS = 500  # of a client
NEGATIVES = 2000
ASKED = 1000  # new points, on which weights are compared
ANGLES = (np.pi / 2, 7 * np.pi / 6, 11 * np.pi / 6)
CENTRES = 3 * np.array([[np.cos(angle), np.sin(angle)] for angle in ANGLES])


def iris(seed: int) -> dict[str, float]:
    """Return the test accuracy of three clients' linear classifiers together, by how
    they are weighted.

    Iris on its two principal components, 100 records at three clients (Dirichlet, α =
    0.1), 50 to test.
    """
    from scipy.stats import gaussian_kde
    from sklearn.datasets import load_iris

    bunch = load_iris()
    rng = np.random.default_rng(seed)
    centred = bunch.data - bunch.data.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    x = centred @ directions[:2].T
    y = bunch.target
    order = rng.permutation(len(x))
    test = order[:50]
    train = order[50:]
    answers = []
    densities = []
    for places in dirichlet(y[train], CLIENTS, IRIS_ALPHA, rng):
        part = train[places]
        classifier = _classifier(x[part], y[part])
        answers.append(classifier(x[test]))
        densities.append(gaussian_kde(x[part].T)(x[test].T))
    kernel_density = np.stack(densities)
    weightings = {
        "equal weights": np.ones_like(kernel_density),
        "kernel density": kernel_density + 1e-8,
    }
    accuracies = {}
    for name, weights in weightings.items():
        predicted = mean_answer(np.stack(answers), weights).argmax(axis=1)
        accuracies[name] = float(np.mean(predicted == y[test]))
    return accuracies


def mean_answer(answers: Matrix, weights: Matrix) -> Matrix:
    """The weighted mean of (clients, records, classes) with weights (clients,
    records).
    """
    total = (weights[..., None] * answers).sum(axis=0)
    return np.asarray(total / weights.sum(axis=0)[:, None])


def _classifier(
    x: Matrix, y: NDArray[np.int64], classes: int = 3
) -> Callable[[Matrix], Matrix]:
    """A linear classifier; of a client with one class, the constant."""
    from sklearn.linear_model import LogisticRegression

    held = np.unique(y)
    model = LogisticRegression().fit(x, y) if len(held) > 1 else None

    def answer(rows: Matrix) -> Matrix:
        probabilities = np.zeros((len(rows), classes))
        probabilities[:, held] = 1.0 if model is None else model.predict_proba(rows)
        return probabilities

    return answer


def gaussians(seed: int) -> dict[str, float]:
    """Return how far scores are from D_i(x)/ΣD_j(x), the weights of Mansour et al., by
    how scores are made.

    Three clients with 500 points each of Gaussians in the plane, public points from a
    wider one. The distance is total variation, mean over new points of all clients: 0
    for the weights of theory; equal weights are the yardstick.
    """
    rng = np.random.default_rng(seed)
    private = [rng.normal(centre, 1.0, (GAUSSIAN_RECORDS, 2)) for centre in CENTRES]
    negatives = rng.normal(0.0, 3.0, (NEGATIVES, 2))
    new = [rng.normal(centre, 1.0, (ASKED // CLIENTS, 2)) for centre in CENTRES]
    points = np.concatenate(new)
    log_densities = [-0.5 * ((points - centre) ** 2).sum(axis=1) for centre in CENTRES]
    log_density = np.stack(log_densities)
    theory = normalised(np.exp(log_density - log_density.max(axis=0)))
    plain = _regression(private, negatives, points)
    regularised = LogisticScorer(0.1)
    hardly_noisy = _released(private, negatives, points, regularised, epsilon=1000.0)
    noisy = _released(private, negatives, points, regularised, epsilon=0.1)
    # Each client is a class of its own.
    scorer = ClassEmbeddingScorer(CLIENTS, 5)
    embedding = _released(private, negatives, points, scorer, epsilon=1.0)
    shares = {
        "equal weights": np.full_like(theory, 1 / CLIENTS),
        "s of logistic regression, not regularised, no noise": _shares(
            plain, "certainty"
        ),
        "s/(1 − s) of the same": _shares(plain, "odds"),
        "s at the paper's λ = 0.1, hardly any noise": _shares(
            hardly_noisy, "certainty"
        ),
        "s at λ = 0.1, ε = 0.1": _shares(noisy, "certainty"),
        "s/(1 − s) of the class embedding, ε = 1": _shares(embedding, "odds"),
    }
    return {name: distance(weights, theory) for name, weights in shares.items()}


def _regression(private: Sequence[Matrix], negatives: Matrix, points: Matrix) -> Matrix:
    """Each client's log-odds on `points` by logistic regression with an intercept,
    which knows no privacy.
    """
    from sklearn.linear_model import LogisticRegression

    log_odds = []
    for records in private:
        rows = np.concatenate([records, negatives])
        labels = np.repeat([1, 0], [len(records), len(negatives)])
        model = LogisticRegression(C=1e6, max_iter=1000).fit(quadratic(rows), labels)
        log_odds.append(model.decision_function(quadratic(points)))
    return np.stack(log_odds)


def _released(
    private: Sequence[Matrix],
    negatives: Matrix,
    points: Matrix,
    scorer: PublicScorer,
    epsilon: float,
) -> Matrix:
    """Each client's log-odds on `points` from its release."""
    privacy = PrivacyConfig(scorer=scorer.name, epsilon=epsilon)
    public = scorer.publish(quadratic(negatives))
    releases = []
    for index, records in enumerate(private):
        labels = np.full(len(records), index)
        shares = np.ones(len(records))
        summary = summarise(
            scorer,
            public,
            quadratic(records),
            labels,
            "replace-one",
            len(records),
            shares,
        )
        releases.append(release(summary, f"client-{index}", privacy))
    rows = scorer.embed(public, quadratic(points))
    reference = Reference(np.asarray(scorer.embed(public, quadratic(negatives))))
    fitted = scorer.fit(public, reference, releases)
    if fitted.transform is not None:
        rows = fitted.transform(rows)
    return np.stack([fitted.log_odds[sent.client](rows) for sent in releases])


def _shares(log_odds: Matrix, kind: str) -> Matrix:
    return normalised(teacher_weights(log_odds, log_odds.max(axis=0), kind))


def quadratic(points: Matrix) -> Matrix:
    """(x, y) → (x, y, x², xy, y²): the log-density of a Gaussian is linear in these."""
    x, y = points.T
    return np.stack([x, y, x * x, x * y, y * y], axis=1)


def normalised(weights: Matrix) -> Matrix:
    """Weights of each column that add up to 1."""
    return np.asarray(weights / weights.sum(axis=0))


def distance(weights: Matrix, theory: Matrix) -> float:
    """Total variation between columns of shares, on average."""
    return float(np.abs(weights - theory).sum(axis=0).mean() / 2)


def study(folder: Path, seeds: int) -> str:
    """Write toys.json and toys.md for so many seeds, and return the tables."""
    accuracies = [iris(seed) for seed in range(seeds)]
    distances = [gaussians(seed) for seed in range(seeds)]
    tables = (
        "Iris: test accuracy of the weighted mean of three clients, "
        f"{plural(seeds, 'split')}.\n\n{_table(accuracies, 100)}\nGaussians: "
        "distance of the scores' shares from those of theory, "
        f"{plural(seeds, 'draw')}.\n\n{_table(distances, 1)}"
    )
    figures = {"iris": accuracies, "gaussians": distances}
    as_json = json.dumps(figures, indent=1, ensure_ascii=False)
    write_atomically(folder / "toys.json", as_json.encode())
    write_atomically(folder / "toys.md", tables.encode())
    return tables


def _table(rows: Sequence[Mapping[str, float]], factor: float) -> str:
    digits = 1 if factor > 1 else 3
    figure = "accuracy in %" if factor > 1 else "distance"
    lines = []
    for name in rows[0]:
        values = factor * np.array([row[name] for row in rows])
        cell = f"{values.mean():.{digits}f}"
        if len(values) > 1:
            cell += f" ± {values.std(ddof=1):.{digits}f}"
        lines.append((name, cell))
    return markdown(lines, ("weights", figure))

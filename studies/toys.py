"""The paper's two toys: teachers weighted by a kernel density on Iris, and scores
against the weights of theory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.config.sections import PrivacyConfig
from fedaux.core.io import write_atomically
from fedaux.data.partition import dirichlet
from fedaux.privacy.mechanism import release
from fedaux.report.tables import markdown
from fedaux.report.terminal import plural
from fedaux.scoring.base import Reference, Scorer
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.teacher_weights import teacher_weights

Matrix = NDArray[np.float64]
CLIENTS = 3
IRIS_ALPHA = 0.1
GAUSSIAN_RECORDS, NEGATIVES, ASKED = 500, 2000, 1000
CENTRES = 3 * np.array(
    [
        [np.cos(angle), np.sin(angle)]
        for angle in (np.pi / 2, 7 * np.pi / 6, 11 * np.pi / 6)
    ]
)


def iris(seed: int) -> dict[str, float]:
    """Return the test accuracy of three clients' linear classifiers together, by how
    they are weighted.

    Iris on its two principal components, 100 records at three clients (Dirichlet, α =
    0.1), 50 to test.
    """
    from scipy.stats import gaussian_kde
    from sklearn.datasets import load_iris

    bunch, rng = load_iris(), np.random.default_rng(seed)
    centred = bunch.data - bunch.data.mean(axis=0)
    x = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    order = rng.permutation(len(x))
    test, train = order[:50], order[50:]
    parts = [
        train[part] for part in dirichlet(bunch.target[train], CLIENTS, IRIS_ALPHA, rng)
    ]
    answers = np.stack(
        [_classifier(x[part], bunch.target[part])(x[test]) for part in parts]
    )
    densities = np.stack([gaussian_kde(x[part].T)(x[test].T) for part in parts])
    weightings = {
        "equal weights": np.ones_like(densities),
        "kernel density": densities + 1e-8,
    }
    return {
        name: float(
            np.mean(mean_answer(answers, weights).argmax(axis=1) == bunch.target[test])
        )
        for name, weights in weightings.items()
    }


def mean_answer(answers: Matrix, weights: Matrix) -> Matrix:
    """The weighted mean of (clients, records, classes) with weights (clients,
    records).
    """
    return np.asarray(
        (weights[..., None] * answers).sum(axis=0) / weights.sum(axis=0)[:, None]
    )


def _classifier(
    x: Matrix, y: NDArray[np.int64], classes: int = 3
) -> Callable[[Matrix], Matrix]:
    """A linear classifier; of a client with one class, the constant."""
    from sklearn.linear_model import LogisticRegression

    known = np.unique(y)
    model = LogisticRegression().fit(x, y) if len(known) > 1 else None

    def answer(rows: Matrix) -> Matrix:
        found = np.zeros((len(rows), classes))
        found[:, known] = 1.0 if model is None else model.predict_proba(rows)
        return found

    return answer


def gaussians(seed: int) -> dict[str, float]:
    """Return how far scores are from D_i(x)/ΣD_j(x), the weights of Mansour et al., by
    how scores are made.

    Three clients with 500 points each of Gaussians in the plane, public points from a
    wider one. The distance is total variation, mean over new points of all clients: 0
    for the weights of theory; equal weights are the yardstick.
    """
    rng = np.random.default_rng(seed)
    own = [rng.normal(centre, 1.0, (GAUSSIAN_RECORDS, 2)) for centre in CENTRES]
    negatives = rng.normal(0.0, 3.0, (NEGATIVES, 2))
    asked = np.concatenate(
        [rng.normal(centre, 1.0, (ASKED // CLIENTS, 2)) for centre in CENTRES]
    )
    log_density = np.stack(
        [-0.5 * ((asked - centre) ** 2).sum(axis=1) for centre in CENTRES]
    )
    theory = normalised(np.exp(log_density - log_density.max(axis=0)))
    plain = _regression(own, negatives, asked)
    logistic = {
        epsilon: _released(own, negatives, asked, LogisticScorer(0.1), epsilon)
        for epsilon in (1000.0, 0.1)
    }
    embedding = _released(own, negatives, asked, ClassEmbeddingScorer(CLIENTS, 5), 1.0)
    shares = {
        "equal weights": np.full_like(theory, 1 / CLIENTS),
        "s of logistic regression, not regularised, no noise": _shares(
            plain, "certainty"
        ),
        "s/(1 − s) of the same": _shares(plain, "odds"),
        "s at the paper's λ = 0.1, hardly any noise": _shares(
            logistic[1000.0], "certainty"
        ),
        "s at λ = 0.1, ε = 0.1": _shares(logistic[0.1], "certainty"),
        "s/(1 − s) of the class embedding, ε = 1": _shares(embedding, "odds"),
    }
    return {name: distance(found, theory) for name, found in shares.items()}


def _regression(own: Sequence[Matrix], negatives: Matrix, asked: Matrix) -> Matrix:
    """Each client's log-odds on `asked` by logistic regression with an intercept, which
    knows no privacy.
    """
    from sklearn.linear_model import LogisticRegression

    found = []
    for points in own:
        rows, labels = (
            np.concatenate([points, negatives]),
            np.repeat([1, 0], [len(points), len(negatives)]),
        )
        model = LogisticRegression(C=1e6, max_iter=1000).fit(quadratic(rows), labels)
        found.append(model.decision_function(quadratic(asked)))
    return np.stack(found)


def _released(
    own: Sequence[Matrix],
    negatives: Matrix,
    asked: Matrix,
    scorer: Scorer,
    epsilon: float,
) -> Matrix:
    """Each client's log-odds on `asked` from its release."""
    privacy, public = (
        PrivacyConfig(scorer=scorer.name, epsilon=epsilon),
        scorer.publish(quadratic(negatives)),
    )
    sent = []
    for index, points in enumerate(own):
        labels, shares = np.full(len(points), index), np.ones(len(points))
        summary = scorer.summarise(
            public, quadratic(points), labels, "replace-one", len(points), shares
        )
        sent.append(release(summary, f"client-{index}", privacy))
    rows = scorer.embed(public, quadratic(asked))
    fitted = scorer.fit(
        public, Reference(np.asarray(scorer.embed(public, quadratic(negatives)))), sent
    )
    if fitted.transform is not None:
        rows = fitted.transform(rows)
    return np.stack([fitted.log_odds[release.client](rows) for release in sent])


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
    toys = {"iris": iris, "gaussians": gaussians}
    found = {name: [toy(seed) for seed in range(seeds)] for name, toy in toys.items()}
    text = (
        "Iris: test accuracy of the weighted mean of three clients, "
        f"{plural(seeds, 'split')}.\n\n{_table(found['iris'], 100)}\nGaussians: "
        "distance of the scores' shares from those of theory, "
        f"{plural(seeds, 'draw')}.\n\n{_table(found['gaussians'], 1)}"
    )
    write_atomically(
        folder / "toys.json", json.dumps(found, indent=1, ensure_ascii=False).encode()
    )
    write_atomically(folder / "toys.md", text.encode())
    return text


def _table(rows: Sequence[Mapping[str, float]], factor: float) -> str:
    digits = 1 if factor > 1 else 3
    lines = []
    for name in rows[0]:
        values = factor * np.array([row[name] for row in rows])
        spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
        lines.append((name, f"{values.mean():.{digits}f}{spread}"))
    return markdown(lines, ("weights", "accuracy in %" if factor > 1 else "distance"))

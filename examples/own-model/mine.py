"""What you bring: a network, and a function that reads your data. All else is
fedaux.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from torch import nn

from fedaux import Corpus, Extractor, Records


def network(shape: tuple[int, ...], width: int = 32) -> nn.Module:
    """The feature extractor of your model, (B, *shape) → (B, width). fedaux adds the
    linear head.
    """
    (columns,) = shape
    return Extractor(
        nn.Linear(columns, width), nn.LayerNorm(width), nn.ReLU(), width=width
    )


SCALE = np.concatenate(
    [
        # means of radius, texture, perimeter, area, smoothness, …
        [30, 40, 200, 2000, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1],
        [3, 5, 20, 300, 0.03, 0.1, 0.3, 0.05, 0.07, 0.02],  # their standard errors
        [40, 50, 300, 4000, 0.3, 1, 1, 0.3, 0.7, 0.2],  # the worst cells
    ]
)


def tumours() -> Corpus:
    """Scikit-learn's breast cancer table: 569 tumours, 30 measurements each, malignant
    or benign.

    Columns are divided by round numbers that anybody may know. A mean over private
    records would be one more thing that is revealed, and no ε would speak of it.
    """
    bunch = load_breast_cancer()
    x = (bunch.data / SCALE).astype(np.float32)
    return Corpus(
        Records(x, bunch.target.astype(np.int64)),
        classes=tuple(map(str, bunch.target_names)),
    )

"""Your network, and a function that reads your data. fedaux does the rest."""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from fedaux import Corpus, Extractor, Records


def network(shape, width=32):
    """The feature extractor of your model, (B, *shape) → (B, width); fedaux adds the linear head."""
    return Extractor(
        nn.Flatten(), nn.Linear(int(np.prod(shape)), width), nn.ReLU(), width=width
    )


def data():
    """Records and labels. Images are uint8 (N, H, W, C), tables are floats (N, columns)."""
    x, y = load_digits(return_X_y=True)
    return Corpus(
        Records((x / 16).astype(np.float32), y.astype(np.int64)),
        classes=tuple("0123456789"),
    )

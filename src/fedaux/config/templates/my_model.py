"""A network and data of your own. All else is fedaux."""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from fedaux import Corpus, Records, per_record_safe


@per_record_safe  # your word that its output for a record depends on that record alone
class Network(nn.Module):
    """The part of your model below its last layer; fedaux adds a linear layer for the
    classes.
    """

    def __init__(self, inputs, width):
        super().__init__()
        self.width = width  # how many features come out
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, 64),
            nn.ReLU(),
            nn.Linear(64, width),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.layers(x)


def network(shape, width=32):
    """shape is that of one record as the network sees it; images are channels first."""
    return Network(int(np.prod(shape)), width)


def data():
    """Records with labels 0, 1, …. Images are uint8 (N, H, W, C), tables float32
    (N, columns), texts lists of str.
    """
    x, y = load_digits(return_X_y=True)
    return Corpus(
        train=Records((x / 16).astype(np.float32), y.astype(np.int64)),
        classes=tuple("0123456789"),
    )

"""How much a linear classifier finds in frozen features. It needs labels, so it reports and never chooses."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from fedaux.data.records import Records

RIDGE = 1.0  # scikit-learn's C, on features of mean 0 and variance 1


def linear_probe(train: Records, test: Records) -> float:
    """Test accuracy of a logistic regression on the rows of `train` as they are, flattened and standardised."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    x, x_test = _flat(train), _flat(test)
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale < 1e-6] = 1.0
    x -= mean
    x /= scale
    x_test -= mean
    x_test /= scale
    with warnings.catch_warnings():  # the last digits of a report are not worth more steps
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(C=RIDGE, max_iter=200).fit(x, train.labels)
    return float(np.mean(fitted.predict(x_test) == test.labels))


def _flat(records: Records) -> NDArray[np.float32]:
    return records.tensor().numpy().reshape(len(records), -1)

"""Linear evaluation of frozen features. It uses labels, so it is for reports only, never for model selection."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from fedaux.data.records import Records

C = 1.0  # inverse regularisation strength, on standardised features


def linear_probe(train: Records, test: Records) -> float:
    """Test accuracy of a logistic regression on the flattened and standardised rows of `train`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    x, x_test = _flat(train), _flat(test)
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale < 1e-6] = 1.0
    x -= mean
    x /= scale
    x_test -= mean
    x_test /= scale
    with warnings.catch_warnings():  # accurate enough for a report
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=C, max_iter=200).fit(x, train.labels)
    return float(np.mean(model.predict(x_test) == test.labels))


def _flat(records: Records) -> NDArray[np.float32]:
    return records.tensor().numpy().reshape(len(records), -1)

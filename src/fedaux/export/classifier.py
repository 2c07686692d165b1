"""A trained model with the manners of scikit-learn's classifiers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from fedaux.export.model import Model


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A trained model as scikit-learn's functions expect a classifier: in
    `sklearn.metrics`, `sklearn.inspection` or `sklearn.calibration`.

    It takes the same records as the model: a DataFrame, a list of dictionaries or an
    array.

    Attributes:
        model: The model.
        classes_: The names of the classes, in the order of the columns of
            `predict_proba`.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def classes_(self) -> NDArray[np.str_]:
        return np.array(self.model.classes)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """The columns of a table that the model reads."""
        schema = self.model.schema
        if schema is None:
            raise AttributeError("only the model of a table has names of columns")
        return np.array(list(schema.columns), dtype=object)

    def fit(self, x: Any = None, y: Any = None) -> Self:
        """Do nothing: the model is trained, as in a `FrozenEstimator`."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """Probabilities (N, C)."""
        return self.model.predict(x)

    def decision_function(self, x: Any) -> NDArray[np.float32]:
        """Logits (N, C), or (N,) for the second of two classes."""
        logits = self.model.logits(x)
        if logits.shape[1] == 2:
            difference: NDArray[np.float32] = logits[:, 1] - logits[:, 0]
            return difference
        return logits

    def predict(self, x: Any) -> NDArray[np.str_]:
        """The name of the most probable class of each record."""
        names: NDArray[np.str_] = self.classes_[self.model.logits(x).argmax(axis=1)]
        return names

"""What the columns of a table do to a linear model, against all values that they may
have; and the model among scikit-learn's.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import is_classifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import RecordSpec
from fedaux.data.table_encoding import column_names, encode
from fedaux.data.table_schema import Column, TableHeader, TableSchema
from fedaux.export.column_effects import ColumnEffect, column_effects
from fedaux.export.model import Model
from fedaux.models import Prototype, build

SCHEMA = TableSchema(
    TableHeader(classes=("healthy", "ill"), decimal=",", delimiter=";"),
    {
        "age": Column(range=(0, 100), quantiles=(0, 30, 70, 100), missing=True),
        "pressure": Column(range=(0, 10), bins=(2.5, 5)),
        "ward": Column("category", values=("a", "b"), missing=True),
        "smoker": Column("flag", values=("no", "yes")),
    },
    {},
)
NUMBERS = len(column_names(SCHEMA))
TRIED = {
    "age": ["0", "12", "30", "70", "100", ""],
    "pressure": ["0", "2,4999999999", "2,5", "4,9999999999", "5", "10"],
    "ward": ["a", "b", "z", ""],
    "smoker": ["no", "yes"],
}


def network(classes: int, name: str = "linear", seed: int = 0) -> Prototype:
    made = build(PrototypeSpec(name), (NUMBERS,), classes, seed=seed)
    torch.manual_seed(seed)
    torch.nn.init.normal_(made.head.weight)  # type: ignore[arg-type]
    if name == "linear":
        rows = np.random.default_rng(seed).normal(3, 2, (50, NUMBERS))
        made.features.fit(rows)  # type: ignore[operator]
    return made.eval()


def logits(made: Prototype, values: dict[str, str]) -> np.ndarray:
    row = encode(SCHEMA, [[values[name]] for name in SCHEMA.columns])
    with torch.inference_mode():
        return made(torch.from_numpy(row)).numpy()[0].astype(np.float64)


def shown(value: str) -> str:
    """A value for readers; the number just below a bound looks like it."""
    words = {"z": "another value", "": "no value"}
    if value[:1].isdigit():
        return f"{float(value.replace(',', '.')):g}"
    return words.get(value, value)


@pytest.mark.parametrize("seed", range(5))
def test_an_effect_is_the_most_that_a_column_can_do(seed: int) -> None:
    """Of the two values that are named, whatever the other columns are."""
    made = network(2, seed=seed)
    effects = {one.column: one for one in column_effects(made, SCHEMA, ("h", "ill"))}
    assert list(effects) == sorted(effects, key=lambda name: -effects[name].effect)
    usual = {"age": "50", "pressure": "3", "ward": "b", "smoker": "yes"}
    for name, values in TRIED.items():
        odds = {}
        for value in values:
            low, high = logits(made, usual | {name: value})
            odds[value] = high - low
        span = max(odds.values()) - min(odds.values())
        assert effects[name].effect == pytest.approx(span, rel=1e-4)
        assert effects[name].towards == "ill"
        largest = max(odds, key=odds.__getitem__)
        assert effects[name].largest == shown(largest)
        assert effects[name].smallest == shown(min(odds, key=odds.__getitem__))


def test_of_more_classes_the_one_that_is_moved_furthest_is_named() -> None:
    classes = ("a", "b", "c")
    made = network(3)
    for effect in column_effects(made, SCHEMA, classes):
        spans = []
        for place, _ in enumerate(classes):
            moved = []
            for value in TRIED[effect.column]:
                usual = {"age": "50", "pressure": "3", "ward": "b", "smoker": "yes"}
                found = logits(made, usual | {effect.column: value})
                moved.append(found[place] - found.mean())
            spans.append(max(moved) - min(moved))
        assert effect.effect == pytest.approx(max(spans), rel=1e-4)
        assert effect.towards == classes[int(np.argmax(spans))]


def test_numbers_are_shown_with_their_unit() -> None:
    age = replace(SCHEMA.columns["age"], unit="years", missing=False)
    schema = replace(SCHEMA, columns={**SCHEMA.columns, "age": age})
    effects = column_effects(network(2), SCHEMA, ("h", "ill"))
    assert not any("years" in effect.largest for effect in effects)
    made = build(PrototypeSpec("linear"), (len(column_names(schema)),), 2, seed=0)
    (effect,) = [
        one for one in column_effects(made, schema, ("h", "ill")) if one.column == "age"
    ]
    assert {effect.largest, effect.smallest} == {"0 years", "100 years"}


def test_a_network_with_hidden_layers_has_no_effects() -> None:
    assert column_effects(network(2, "mlp"), SCHEMA, ("healthy", "ill")) == []


@pytest.fixture
def model() -> Model:
    card = {
        "classes": ["healthy", "ill"],
        "record": RecordSpec("numbers", (NUMBERS,)).to_card(),
        "schema": SCHEMA.to_dict(),
    }
    made = Model(network(2), card)
    odds = made.classifier.decision_function(ROWS)
    with torch.no_grad():  # as many answers of either class
        made.network.head.bias[1] -= float(np.median(odds))  # type: ignore[index]
    return made


ROWS: list[dict[str, Any]] = [
    {"age": age, "pressure": pressure, "ward": ward, "smoker": smoker}
    for age, pressure, ward, smoker in product(
        (20, 60.5, None), (1.0, 7.5), ("a", "b"), ("no", "yes")
    )
]


def test_records_are_dictionaries_or_a_frame(model: Model) -> None:
    pandas = pytest.importorskip("pandas")
    by_rows = model.predict(ROWS)
    assert by_rows.shape == (24, 2)
    assert len(np.unique(by_rows, axis=0)) == 24
    np.testing.assert_array_equal(model.predict(pandas.DataFrame(ROWS)), by_rows)
    # a value that one row lacks is missing, and the order of names is no matter
    without = {"smoker": "yes", "ward": "b", "pressure": 7.5}
    alike = [*ROWS[:-1], without]
    np.testing.assert_array_equal(model.predict(alike), by_rows)
    with pytest.raises(ValueError, match="there is no column age"):
        model.predict([without])


def test_effects_are_of_the_model(model: Model) -> None:
    assert isinstance(model.columns[0], ColumnEffect)
    assert {one.column for one in model.columns} == set(SCHEMA.columns)
    without = Model(model.network, {**model.card, "schema": None})
    assert without.columns == []


def test_a_model_is_a_classifier_among_others(model: Model) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    classifier = model.classifier
    check_is_fitted(classifier)
    assert is_classifier(classifier)
    assert classifier.fit(frame, None) is classifier
    assert classifier.classes_.tolist() == ["healthy", "ill"]
    assert classifier.feature_names_in_.tolist() == list(SCHEMA.columns)
    probabilities = classifier.predict_proba(frame)
    np.testing.assert_array_equal(probabilities, model.predict(frame))
    answers = classifier.predict(frame)
    assert set(answers) == {"healthy", "ill"}
    np.testing.assert_array_equal(answers == "ill", probabilities[:, 1] > 0.5)
    np.testing.assert_array_equal(
        classifier.decision_function(frame) > 0, answers == "ill"
    )
    truth = np.where(frame["smoker"] == "yes", "ill", "healthy")
    assert classifier.score(frame, truth) == accuracy_score(truth, answers)
    found = permutation_importance(
        classifier, frame, answers, n_repeats=3, random_state=0
    )
    assert found.importances_mean.max() > 0

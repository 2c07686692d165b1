"""The columns of a table that matter to a linear model: how far each of them can move
the logarithm of the odds of a class.

They are computed from the weights of the model and its schema alone, so they reveal
nothing that the model does not: a guarantee of the weights covers them, at the same ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaux.data.table_encoding import ANOTHER_VALUE, column_names, encode
from fedaux.data.table_schema import Column, TableSchema
from fedaux.models import Prototype
from fedaux.models.networks import Columns

NO_VALUE = "no value"


@dataclass(frozen=True)
class ColumnEffect:
    """The effect of one column, whatever the values of the others.

    Attributes:
        column: Its name.
        effect: The difference between the largest and the smallest contribution of its
            values to the log-odds of `towards`.
        towards: The second of two classes. With more classes, the one that it moves
            furthest.
        largest: The value that contributes most.
        smallest: The value that contributes least.
    """

    column: str
    effect: float
    towards: str
    largest: str
    smallest: str


def column_effects(
    network: Prototype, schema: TableSchema, classes: Sequence[str]
) -> list[ColumnEffect]:
    """Return the effect of each column, largest first; [] for a model whose columns
    are not added up, such as a network with hidden layers.
    """
    head = network.head
    if not isinstance(network.features, Columns) or not isinstance(head, nn.Linear):
        return []
    weight = head.weight / network.features.deviation
    weights = log_odds_weights(weight.detach().cpu().double().numpy())
    effects: list[ColumnEffect] = []
    start = 0
    for name, column in schema.columns.items():
        values, encoded = _tried(schema, name, column)
        end = start + encoded.shape[1]
        contributions = encoded @ weights[:, start:end].T  # (values, classes)
        start = end
        spans = np.ptp(contributions, axis=0)
        towards = int(spans.argmax())
        moved = contributions[:, towards]
        effects.append(
            ColumnEffect(
                name,
                float(spans[towards]),
                classes[1] if len(classes) == 2 else classes[towards],
                values[int(moved.argmax())],
                values[int(moved.argmin())],
            )
        )
    return sorted(effects, key=lambda effect: -effect.effect)


def log_odds_weights(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1, numbers) for two classes, whose log-odds are the difference of two logits;
    (classes, numbers) for more, each against the mean of all.
    """
    rest = weight[:1] if len(weight) == 2 else weight.mean(axis=0)
    against: NDArray[np.float64] = weight - rest
    return against[1:] if len(weight) == 2 else against


def _tried(
    schema: TableSchema, name: str, column: Column
) -> tuple[list[str], NDArray[np.float64]]:
    """Values of a column between which it contributes most and least, for readers, and
    as numbers.
    """
    header = schema.header
    if column.kind == "number":
        points = {*column.range, *column.quantiles, *column.bins}
        points |= {float(np.nextafter(bound, -np.inf)) for bound in column.bins}
        ordered = sorted(points)
        shown = [f"{point:g} {column.unit}".rstrip() for point in ordered]
        texts = [repr(point).replace(".", header.decimal) for point in ordered]
    else:
        texts = list(column.values)
        shown = list(column.values)
    if column.kind == "category":
        texts.append(_unused(schema, column))
        shown.append(ANOTHER_VALUE)
    if column.missing:
        texts.append("")
        shown.append(NO_VALUE)
    alone = replace(schema, columns={name: column})
    encoded = encode(alone, [texts]).astype(np.float64)
    assert encoded.shape[1] == len(column_names(alone))
    return shown, encoded


def _unused(schema: TableSchema, column: Column) -> str:
    """A text that is none of the values, and not missing."""
    text = "another"
    while text in column.values or text in schema.header.missing:
        text += "_"
    return text

"""A schema as layers of a network, for graphs that take a table's own columns.

A graph of tensors knows no texts, so a record is a row of numbers, one for each column
of the schema: a number as it is, the position of a category's value in the schema's
list (−1: another value), 0 or 1 for a flag. NaN stands for a missing value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.data.table_encoding import scale
from fedaux.data.table_schema import Column, TableSchema

OTHER_VALUE = -1.0


class TableEncoder(nn.Module):
    """(B, columns) of float64 → (B, numbers) of float32, as `data.table_encoding`
    encodes records.
    """

    def __init__(self, schema: TableSchema) -> None:
        super().__init__()
        self.columns = list(schema.columns.values())
        for place, column in enumerate(self.columns):
            if column.kind == "number":
                points, places = breakpoints(column)
                bins = [-np.inf, *column.bins, np.inf] if column.bins else []
                self._constant(place, "points", points)
                self._constant(place, "places", places)
                self._constant(place, "bins", np.array(bins))

    def _constant(self, place: int, name: str, values: NDArray[np.float64]) -> None:
        tensor = torch.from_numpy(np.asarray(values, np.float64))
        self.register_buffer(f"{name}_{place}", tensor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        parts: list[Tensor] = []
        for place, column in enumerate(self.columns):
            value = x[:, place : place + 1]
            absent = torch.isnan(value)
            if column.kind == "number":
                parts += self._number(place, column, value, absent)
            elif column.kind == "flag":
                parts.append(torch.where(absent, 0.5, value))
            else:
                codes = torch.arange(len(column.values), dtype=value.dtype)
                told = value == codes
                known = told.any(dim=1, keepdim=True)
                parts += [told, ~(known | absent)]
            if column.missing:
                parts.append(absent)
        return torch.cat([part.double() for part in parts], dim=1).float()

    def _number(
        self, place: int, column: Column, value: Tensor, absent: Tensor
    ) -> list[Tensor]:
        points = self.get_buffer(f"points_{place}")
        places = self.get_buffer(f"places_{place}")
        least, largest = column.range
        clipped = torch.where(absent, least, value).clamp(least, largest)
        lengths = points[1:] - points[:-1]
        slopes = (places[1:] - places[:-1]) / lengths
        covered = torch.minimum((clipped - points[:-1]).clamp(min=0.0), lengths)
        scaled = places[0] + (covered * slopes).sum(dim=1, keepdim=True)
        parts = [torch.where(absent, 0.0, scaled)]
        if column.bins:
            bins = self.get_buffer(f"bins_{place}")
            inside = (clipped >= bins[:-1]) & (clipped < bins[1:])
            parts.append(inside & ~absent)
        return parts


def breakpoints(
    column: Column,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(values at which the scale of a number bends, their places from −1 to 1)."""
    points = np.unique(np.array(column.quantiles or column.range))
    places = scale(column, points)
    if len(points) == 1:  # all quantiles are the same
        points = np.array([points[0], points[0] + 1.0])
        places = np.array([places[0], places[0]])
    return points, places


def describe_columns(schema: TableSchema) -> list[dict[str, Any]]:
    """What each number of a row is, for the model's card."""
    described: list[dict[str, Any]] = []
    for name, column in schema.columns.items():
        row: dict[str, Any] = {"column": name, "kind": column.kind}
        if column.kind != "number":
            row["values"] = list(column.values)
        described.append(row)
    return described


def random_rows(schema: TableSchema, size: int) -> NDArray[np.float64]:
    """Rows within and outside of what the schema expects, a few of them missing."""
    rng = np.random.default_rng(size)
    columns: list[NDArray[np.float64]] = []
    for column in schema.columns.values():
        if column.kind == "number":
            least, largest = column.range
            margin = (largest - least) / 4
            values = rng.uniform(least - margin, largest + margin, size)
        elif column.kind == "flag":
            values = rng.integers(0, 2, size).astype(np.float64)
        else:
            values = rng.integers(-1, len(column.values), size).astype(np.float64)
        columns.append(np.where(rng.uniform(size=size) < 0.2, np.nan, values))
    return np.stack(columns, axis=1)

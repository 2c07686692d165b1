"""The bins of a table's columns, by which a look before a run counts records.

The site reads its table once more, by columns with the bins of the order. A value's bin
depends on that value and the order alone (`data.table_encoding`), and every record is
in one bin of each column: values below and above all edges, others than those that the
schema names, and missing ones have bins of their own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaux.config.schema import Config
from fedaux.data.federated import read_columns
from fedaux.data.records import Records
from fedaux.data.table_encoding import column_names
from fedaux.data.table_schema import Column
from fedaux.data.tables import schema_of
from fedaux.messages import Tallies, Tally
from fedaux.messages.tallies import LARGEST_EDGE

Bins = NDArray[np.int64]


def bins_of_columns(
    tallies: Tallies, config: Config, client: str, records: Records
) -> dict[str, Bins]:
    """Return the bin of each record in each column that is counted by."""
    schema = schema_of(config.data)
    if schema is None or not tallies.columns:
        return {}
    columns = {
        tally.column: _with_bins(schema.columns[tally.column], tally)
        for tally in tallies.columns
    }
    x = read_columns(config, client, schema.header, columns)
    rows = slice(None) if records.rows is None else records.rows
    found: dict[str, Bins] = {}
    start = 0
    for name, column in columns.items():
        end = start + len(column_names(replace(schema, columns={name: column})))
        found[name] = _bins(column, x[rows, start:end])
        start = end
    return found


def _with_bins(own: Column, tally: Tally) -> Column:
    """Return a column that tells the bins of a tally apart."""
    if own.kind != "number":
        return replace(own, missing=True)
    widest = (-LARGEST_EDGE, LARGEST_EDGE)
    return Column("number", range=widest, bins=tally.edges, missing=True)


def _bins(column: Column, x: NDArray[np.float32]) -> Bins:
    """Return the bin of each encoded value."""
    if column.kind == "number":
        return np.asarray(x[:, 1:].argmax(axis=1))
    if column.kind == "category":
        return np.asarray(x.argmax(axis=1))
    # no, yes, and what is neither; a flag has no other values than these
    value, missing = x.T
    return np.where(missing == 1, len(column.values) + 1, value).astype(np.int64)

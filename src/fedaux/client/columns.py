"""The bins of a table's columns, by which a look before a run counts records.

The site reads its table once more, by columns with the bins of the order. A value's bin
depends on that value and the order alone (`data.table_encoding`), and every record is
in one bin of each column: values below and above all edges, others than those that the
schema names, and missing ones have bins of their own.

One small integer is kept for each record and column, so a server cannot fill the site's
memory with bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.schema import Config
from fedaux.data.federated import read_bins
from fedaux.data.records import Records
from fedaux.messages import Tallies

Bins = NDArray[np.integer[Any]]


def bins_of_columns(
    tallies: Tallies, config: Config, client: str, records: Records
) -> dict[str, Bins]:
    """Return the bin of each record in each column that is counted by."""
    if not tallies.columns:
        return {}
    edges = {tally.column: tally.edges for tally in tallies.columns}
    bins = read_bins(config, client, edges)
    rows = slice(None) if records.rows is None else records.rows
    return {name: bins[place][rows] for place, name in enumerate(edges)}

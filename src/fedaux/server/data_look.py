"""The look before a run: each site counts all of its records by class and by the columns
of a table, and the server learns the counts under noise. No model has a part in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.results import NoisyCounts, SiteTest
from fedaux.data.federated import class_names
from fedaux.data.table_schema import Column, TableSchema
from fedaux.data.tables import schema_of
from fedaux.messages import Federation, Tallies, Tally
from fedaux.messages.tallies import MAX_TALLIES, OF_CLASSES, OF_COLUMN
from fedaux.messages.types import MAX_JSON
from fedaux.server.agreement import agree_on_plan
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from fedaux.server.site_test import collect_counts, sum_of_counts


class LookError(FedauxError, RuntimeError):
    """No site has counted its records."""

    code = Exit.CLIENTS


@dataclass(frozen=True)
class DataLook:
    """What a look before a run has found.

    Attributes:
        classes: The names of all classes.
        tallies: What was counted.
        schema: The schema of the table, or None for other records.
        unit: What ε protects, and is counted: a record or a person.
        secure: Whether the counts are a secure sum.
        counted: The counts.
    """

    classes: tuple[str, ...]
    tallies: Tallies
    schema: TableSchema | None
    unit: str
    secure: bool
    counted: SiteTest

    @property
    def counts(self) -> NoisyCounts:
        """The counts of all sites together."""
        return sum_of_counts(list(self.counted.counts.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return a table for JSON."""
        return {
            "classes": list(self.classes),
            "unit": self.unit,
            "secure": self.secure,
            "tallies": {
                name: tally.to_row() for name, tally in self.tallies.by_name.items()
            },
            "counted": self.counted.to_dict(),
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], config: Config) -> DataLook:
        """Read a look at the data of a run with these settings."""
        tallies = {name: Tally.from_row(row) for name, row in table["tallies"].items()}
        return cls(
            tuple(table["classes"]),
            Tallies(tallies),
            schema_of(config.data),
            table["unit"],
            table["secure"],
            SiteTest.from_dict(table["counted"]),
        )


def tallies_to_count(config: Config) -> Tallies:
    """Return what a look before a run with these settings counts."""
    if config.privacy.look_epsilon == 0:
        raise ConfigError(
            "Cannot look at the data: privacy.look_epsilon = 0 lets no site be asked. "
            "Set it, for example to 1."
        )
    data = config.data
    return tallies_of_data(schema_of(data), data.look_columns, data.look_bins)


def tallies_of_data(
    schema: TableSchema | None, columns: Sequence[str], bins: int
) -> Tallies:
    """Return what the sites count before a run: their classes, and for a table these
    columns, or all of them.
    """
    by_name = {OF_CLASSES: Tally(OF_CLASSES)}
    known = {} if schema is None else schema.columns
    unknown = [name for name in columns if name not in known]
    if unknown:
        there_is = ", ".join(known) or "none, as the data are no table"
        raise ConfigError(
            f"Cannot count by the column {unknown[0]!r}: the schema does not have it. "
            f"Choose data.look_columns among its columns. There is: {there_is}."
        )
    for name in columns or known:
        by_name[f"column {name}"] = tally_of_column(name, known[name], bins)
    tallies = Tallies(by_name)
    if len(by_name) > MAX_TALLIES or len(tallies.to_json()) > MAX_JSON:
        raise ConfigError(
            f"Cannot count by {len(by_name) - 1} columns in one look: it has room for "
            f"{MAX_TALLIES - 1}, and for {MAX_JSON:,} characters of names and values. "
            "Name fewer in data.look_columns."
        )
    return tallies


def tally_of_column(name: str, column: Column, bins: int) -> Tally:
    """Return the bins of a column: its values, or intervals of its range, with equal
    shares of public records where the schema has their quantiles.
    """
    if column.kind != "number":
        return Tally(OF_COLUMN, column=name, values=column.values)
    points = column.quantiles or column.range
    shares = np.linspace(0, 1, bins + 1)[1:-1]
    inner = np.interp(shares, np.linspace(0, 1, len(points)), points)
    low, high = column.range
    edges = np.unique([low, *inner, high])
    # the largest value of the range is inside
    edges[-1] = np.nextafter(high, np.inf)
    return Tally(OF_COLUMN, edges=tuple(edges.tolist()), column=name)


def look_at_data(
    server: Server, federation: Federation, state: RunState, tallies: Tallies
) -> tuple[RunState, DataLook]:
    """Ask all sites for their counts; return what they have reported, and found."""
    orders = [
        server.orders.look_at_data(state, client, tallies) for client in server.clients
    ]
    state = collect_counts(server, federation, state, tallies, orders)
    counted = state.site_test
    assert counted is not None
    if not counted.counts:
        reasons = "; ".join(
            f"{failure.client}: {failure.reason}" for failure in counted.failures[:3]
        )
        raise LookError(
            f"Cannot show the data: no site has counted its records ({reasons}). Start "
            "the look again when that is fixed."
        )
    config = server.config
    look = DataLook(
        class_names(config),
        tallies,
        schema_of(config.data),
        config.privacy.unit,
        config.federation.secure,
        counted,
    )
    return state, look


def empty_state(server: Server) -> RunState:
    """Return a state without models, from which a look begins."""
    labels = [spec.label for spec in server.config.prototypes]
    weights: dict[str, Arrays] = {label: {} for label in labels}
    return RunState(server.config, 0, weights, assignment=server.site_labels)


def prepare_look(server: Server, federation: Federation) -> tuple[RunState, Tallies]:
    """Choose what is counted, and show it to the sites' owners."""
    tallies = tallies_to_count(server.config)
    state = empty_state(server)
    agree_on_plan(server, federation, state, tallies=tallies)
    return state, tallies

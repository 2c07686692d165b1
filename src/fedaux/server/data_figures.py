"""What a look before a run shows: counts with intervals, quantiles of columns, and a
schema that scales columns by them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fedaux.core.noisy_counts import NoisyCount, consistent, quantiles
from fedaux.core.noisy_metrics import Estimate
from fedaux.core.results import NoisyCounts
from fedaux.data.table_encoding import ANOTHER_VALUE
from fedaux.data.table_schema import TableSchema
from fedaux.messages import Tally
from fedaux.messages.tallies import OF_CLASSES
from fedaux.privacy.accounting import round_up
from fedaux.server.data_look import DataLook
from fedaux.server.site_figures import ALL_SITES

DECILES = tuple(number / 10 for number in range(1, 10))
SHOWN_QUANTILES = (0.1, 0.5, 0.9)
DIGITS = 3  # of a quantile in a schema: noise decides on the others


@dataclass(frozen=True)
class ColumnFigures:
    """The counts of one column.

    Attributes:
        name: Its name.
        bins: How many records have which value, or a value in which interval. The first
            and the last of intervals are outside of the schema's range.
        missing: How many have none, or one that cannot be read.
        quantiles: Of a column of numbers, by share; a quantile that noise hides is
            missing.
    """

    name: str
    bins: tuple[tuple[str, NoisyCount], ...]
    missing: NoisyCount
    quantiles: dict[float, Estimate]

    def to_dict(self) -> dict[str, Any]:
        """Return a table for JSON."""
        return {
            "bins": _rows(self.bins),
            "missing": _row(self.missing),
            "quantiles": {
                f"{share:g}": vars(value) for share, value in self.quantiles.items()
            },
        }


@dataclass(frozen=True)
class DataFigures:
    """The counts of some sites.

    Attributes:
        name: Of the site, or `ALL_SITES`.
        sites: Whose records were counted.
        records: How many there are.
        classes: How many of them have which class.
        unlabelled: How many have none that is declared.
        columns: The counts of each column of a table.
    """

    name: str
    sites: tuple[str, ...]
    records: NoisyCount
    classes: tuple[tuple[str, NoisyCount], ...]
    unlabelled: NoisyCount
    columns: tuple[ColumnFigures, ...]

    def share(self, count: NoisyCount) -> Estimate:
        """Return a count as a share of all records, with the interval of its noise."""
        records = max(1.0, self.records.value)
        low, value, high = (
            min(1.0, max(0.0, number / records))
            for number in (count.low, count.value, count.high)
        )
        return Estimate(value, low, high, count.noise / records)

    def to_dict(self) -> dict[str, Any]:
        """Return a table for JSON."""
        return {
            "sites": list(self.sites),
            "records": _row(self.records),
            "classes": _rows(self.classes),
            "without_class": _row(self.unlabelled),
            "columns": {column.name: column.to_dict() for column in self.columns},
        }


def _row(count: NoisyCount) -> dict[str, float]:
    return {"value": count.value, "low": count.low, "high": count.high}


def _rows(bins: tuple[tuple[str, NoisyCount], ...]) -> dict[str, dict[str, float]]:
    return {label: _row(count) for label, count in bins}


def figures_of_all(look: DataLook) -> DataFigures:
    """Return the counts of all sites together."""
    return _figures(look, ALL_SITES, look.counts)


def figures_by_site(look: DataLook) -> list[DataFigures]:
    """Return the counts of each site; none of them are known of a secure sum."""
    by_site = look.counted.by_site
    return [_figures(look, site, by_site[site]) for site in sorted(by_site)]


def _figures(look: DataLook, name: str, counts: NoisyCounts) -> DataFigures:
    records, bins = consistent(counts.values, counts.deviation)
    *classes, unlabelled = bins[OF_CLASSES]
    return DataFigures(
        name,
        counts.sites,
        records,
        tuple(zip(look.classes, classes, strict=True)),
        unlabelled,
        tuple(
            _column(look, tally, bins[key])
            for key, tally in look.tallies.by_name.items()
            if tally.column
        ),
    )


def _column(look: DataLook, tally: Tally, counts: list[NoisyCount]) -> ColumnFigures:
    *known, missing = counts
    labels = _labels(tally)
    found: dict[float, Estimate] = {}
    if tally.edges:
        estimates = quantiles(tally.edges, known, DECILES)
        found = {
            share: value
            for share, value in zip(DECILES, estimates, strict=True)
            if value is not None
        }
    assert look.schema is not None
    if look.schema.columns[tally.column].kind == "flag":
        labels.remove(ANOTHER_VALUE)  # which counts as missing
        known.pop()
    bins = tuple(zip(labels, known, strict=True))
    return ColumnFigures(tally.column, bins, missing, found)


def _labels(tally: Tally) -> list[str]:
    """Return the names of all bins but the last, which is for missing values."""
    if tally.values:
        return [*tally.values, ANOTHER_VALUE]
    ends = [f"{edge:.4g}" for edge in tally.edges]
    within = [f"{low} to {high}" for low, high in pairwise(ends)]
    return [f"below {ends[0]}", *within, f"above {ends[-1]}"]


def scaled_schema(schema: TableSchema, figures: DataFigures) -> TableSchema:
    """Return the schema with the deciles of each column of numbers whose deciles noise
    does not hide, and with a place for missing values where there are some.

    A missing number is encoded as the middle, which with deciles is the median.
    """
    columns = dict(schema.columns)
    for found in figures.columns:
        column = columns[found.name]
        if len(found.quantiles) == len(DECILES):
            low, high = column.range
            inner = [
                min(high, max(low, float(f"{value.value:.{DIGITS}g}")))
                for value in found.quantiles.values()
            ]
            column = replace(column, quantiles=(low, *sorted(inner), high))
        columns[found.name] = replace(
            column, missing=column.missing or found.missing.low > 0
        )
    return replace(schema, columns=columns)


def count_in_words(count: NoisyCount) -> str:
    """`740 (701 to 779)`."""
    value = max(0.0, count.value)
    return f"{value:,.0f} ({count.low:,.0f} to {count.high:,.0f})"


def describe_data_look(look: DataLook) -> str:
    """Return the look in a sentence or two: who was counted, at which cost."""
    figures = figures_of_all(look)
    counted = look.counted
    count = len(figures.sites)
    sites = "1 site" if count == 1 else f"{count} sites"
    noun = "people" if look.unit == "person" else "records"
    noise = "in one secure sum" if look.secure else "each with noise of its own"
    words = (
        f"{count_in_words(figures.records)} {noun} at {sites}, {noise}, at "
        f"ε = {round_up(counted.epsilon)} for each."
    )
    if counted.total is not None:
        words += f" Now a site has spent ε = {round_up(counted.total)} in all."
    if counted.failures:
        names = ", ".join(failure.client for failure in counted.failures)
        words += f" Not counted: {names}."
    return words

"""Tables held as codes: what is read of them is what encoding gives, to the bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.client.summaries import summarise
from fedaux.config.sections import PrivacyConfig
from fedaux.data import tables
from fedaux.data.fingerprints import fingerprint_array
from fedaux.data.objects import joined, name_corpus
from fedaux.data.records import Records
from fedaux.data.table_encoding import column_names, encode, encode_compactly
from fedaux.data.table_rows import EncodedRows
from fedaux.data.table_schema import Column, TableHeader, TableSchema
from fedaux.data.tables import table
from fedaux.scoring.registry import make_scorer

COLUMNS = {
    "age": Column("number", range=(0, 100), bins=(20, 40, 40, 60), missing=True),
    "plain": Column("number", range=(-1, 1)),
    "smoker": Column("flag", values=("no", "yes"), missing=True),
    "sure": Column("flag", values=("0", "1")),
    "ward": Column("category", values=("a", "b"), missing=True),
    "colour": Column("category", values=("red", "green")),
}
HEADER = TableHeader("y", ("no", "yes"), confirmed=True)
SCHEMA = TableSchema(HEADER, COLUMNS, {})
VALUES = st.sampled_from(["", "NA", "0", "1", "40", "-5", "no", "yes", "a", "red", "x"])


def by_hand(name: str, column: Column, text: str) -> list[float]:
    """The numbers of one value, slot by slot."""
    absent = text in ("", "NA")
    if column.kind == "category":
        others = [text == value for value in column.values]
        found = [*others, not absent and not any(others)]
        return [float(slot) for slot in [*found, *[absent] * column.missing]]
    if column.kind == "flag":
        known = {value: float(place) for place, value in enumerate(column.values)}
        told = text in known
        return [known.get(text, 0.5), *[float(not told)] * column.missing]
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    told = number == number
    low, high = column.range
    clipped = min(max(number, low), high)
    parts = [2 * (clipped - low) / (high - low) - 1 if told else 0.0]
    if column.bins:
        edges = [-np.inf, *column.bins, np.inf]
        pairs = pairwise(edges)
        parts += [float(told and start <= clipped < end) for start, end in pairs]
    return [*parts, *[float(not told)] * column.missing]


@given(st.lists(st.tuples(*[VALUES] * len(COLUMNS)), min_size=1, max_size=6))
def test_rows_are_what_each_value_says(rows: list[tuple[str, ...]]) -> None:
    columns = list(zip(*rows, strict=True))
    expected = [
        [
            number
            for (name, column), text in zip(COLUMNS.items(), row, strict=True)
            for number in by_hand(name, column, text)
        ]
        for row in rows
    ]
    held = EncodedRows.of(SCHEMA, [encode_compactly(SCHEMA, columns)], len(rows))
    assert held.shape == (len(rows), len(column_names(SCHEMA)))
    np.testing.assert_allclose(np.asarray(held), expected, atol=1e-6)
    assert held[:].tobytes() == encode(SCHEMA, columns).tobytes()


def drawn(count: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [
        rng.choice(["", "7", "33", "0.5", "yes", "0", "b", "red"], count).tolist()
        for _ in COLUMNS
    ]


def test_rows_are_read_like_an_array() -> None:
    rows = encode(SCHEMA, drawn(50))
    held = EncodedRows.of(SCHEMA, [encode_compactly(SCHEMA, drawn(50))], 50)
    mask = np.arange(50) % 3 == 0
    for index in (slice(3, 9), np.array([7, 0, 7]), mask, slice(None)):
        assert held[index].tobytes() == rows[index].tobytes()
    assert (len(held), held.ndim, held.dtype) == (50, 2, rows.dtype)
    assert Records(held).tensor(slice(2, 5)).equal(Records(rows).tensor(slice(2, 5)))
    assert Records(held).batch(view=True).equal(Records(rows).batch(view=True))
    assert fingerprint_array(held) == fingerprint_array(rows)  # type: ignore[arg-type]


def test_more_than_256_values_have_codes() -> None:
    values = tuple(f"v{number}" for number in range(300))
    schema = TableSchema(HEADER, {"many": Column("category", values=values)}, {})
    held = EncodedRows.of(schema, [encode_compactly(schema, [list(values)])], 300)
    assert held.codes.dtype == np.uint16
    assert np.array_equal(held[:], np.eye(300, 301))


def write(folder: Path, count: int) -> Path:
    (folder / "schema.toml").write_text(SCHEMA.to_toml())
    lines = [",".join([*COLUMNS, "y"])]
    for number, values in enumerate(zip(*drawn(count), strict=True)):
        lines.append(",".join([*values, "yes" if number % 2 else "no"]))
    (folder / "a.csv").write_text("\n".join(lines))
    return folder / "a.csv"


def test_a_large_table_makes_the_same_release_from_less_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bins = tuple(map(float, range(1, 100)))
    wide = {**COLUMNS, "age": replace(COLUMNS["age"], bins=bins)}
    file = write(tmp_path, 5000)
    schema = replace(SCHEMA, columns=wide)
    small = table(file, schema).train
    assert isinstance(small.x, np.ndarray)
    monkeypatch.setattr(tables, "LARGE_TABLE", small.x.nbytes - 1)
    large = table(file, schema).train
    assert isinstance(large.x, EncodedRows)
    assert large.x.values.nbytes + large.x.codes.nbytes < small.x.nbytes / 10

    privacy = PrivacyConfig(scorer="class-moments", embedding_dim=8)
    scorer = make_scorer(privacy, 2)
    public = scorer.publish(small.x[:500])
    shares = np.ones(5000)
    summaries = [
        summarise(scorer, public, rows.x, rows.labels, "replace-one", 5000, shares)
        for rows in (small, large)
    ]
    assert np.array_equal(summaries[0].values, summaries[1].values)


def test_a_folder_of_large_tables_is_read_like_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = tmp_path / "sites"
    sites.mkdir()
    for name, count in (("a", 300), ("b", 5), ("c", 40)):
        write(tmp_path, count).rename(sites / f"{name}.csv")
    small = table(sites, SCHEMA)
    assert isinstance(small.train.x, np.ndarray)
    # more than each file, and less than all of them
    monkeypatch.setattr(tables, "LARGE_TABLE", small.train.x.nbytes - 1)
    large = table(sites, SCHEMA)
    assert isinstance(large.train.x, EncodedRows)
    assert large.train.x[:].tobytes() == small.train.x.tobytes()
    assert np.array_equal(large.train.labels, small.train.labels)
    assert large.site is not None
    assert np.bincount(large.site).tolist() == [300, 5, 40]


def test_clients_with_large_tables_are_joined_as_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, 60)
    arrays = joined([table(file, SCHEMA), table(file, SCHEMA)], "data")
    monkeypatch.setattr(tables, "LARGE_TABLE", 0)
    parts = [table(file, SCHEMA), table(file, SCHEMA)]
    held = joined(parts, "data")
    assert isinstance(held.train.x, EncodedRows)
    assert held.train.x[:].tobytes() == arrays.train.x.tobytes()
    assert name_corpus(held, "data") == name_corpus(joined(parts, "data"), "data")
    assert name_corpus(held, "data") != name_corpus(parts[0], "data")

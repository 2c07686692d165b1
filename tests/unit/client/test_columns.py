"""Counts by the columns of a table: every value of the file is in one bin."""

from __future__ import annotations

import tracemalloc
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config
from fedaux.client.columns import bins_of_columns
from fedaux.client.gate import check_columns
from fedaux.client.looks import count_in_bins
from fedaux.core.failures import OrderError
from fedaux.data.federated import client_names, open_private
from fedaux.data.records import Records
from fedaux.messages import Tallies, Tally
from fedaux.messages.tallies import MAX_EDGES, STEPS

SCHEMA = """
label = "ill"
classes = ["no", "yes"]
site = "hospital"
confirmed = true
[columns]
age = {kind = "number", range = [20, 90], quantiles = [20, 50, 90]}
pain = {kind = "category", values = ["none", "typical"]}
smoker = {kind = "flag", values = ["no", "yes"], missing = true}
"""
AGES = ("19.9", "20", "54", "90", "90.1", "1e999", "", "?", "old", "-inf")
PAINS = ("none", "typical", "strange", "", "NA", "none", "none", "1", "?", "typical")
SMOKERS = ("no", "Yes", "perhaps", "", "yes", "no", "no", "no", "?", "YES")
TALLIES = Tallies(
    {
        "classes": Tally("classes"),
        "smoker": Tally("column", column="smoker", values=("no", "yes")),
        "age": Tally("column", 0.5, (20.0, 55.0, np.nextafter(90, 91)), "age"),
        "pain": Tally("column", column="pain", values=("none", "typical")),
    }
)


def table(folder: Path, partition: str = "own", label: str = "yes") -> Config:
    """The settings of sites with one table between them."""
    (folder / "schema.toml").write_text(SCHEMA)
    rows = zip(AGES, PAINS, SMOKERS, strict=True)
    lines = [
        f"{age},{pain},{smoker},{label},h{number % 2}"
        for number, (age, pain, smoker) in enumerate(rows)
    ]
    header = "age,pain,smoker,ill,hospital"
    (folder / "data.csv").write_text("\n".join([header, *lines]))
    data = {
        "source": "table",
        "path": str(folder / "data.csv"),
        "options": {"schema": str(folder / "schema.toml")},
        "partition": partition,
        "test_fraction": 0.2,
    }
    aux = {"source": "schema", "path": str(folder / "schema.toml")}
    federation: dict[str, object] = {"sites": ["north", "south"]}
    if partition == "own":
        data["classes"] = ["no", "yes"]
    else:
        data["clients"] = 2
    return Config.from_dict({"data": data, "aux": aux, "federation": federation})


def counted(config: Config, client: str) -> dict[str, list[int]]:
    records, _ = open_private(config, client)
    columns = bins_of_columns(TALLIES, config, client, records)
    logits = np.zeros((len(records), 2), np.float32)
    ones = np.ones(len(records))
    values = count_in_bins(TALLIES, 2, records.labels, logits, ones, columns)
    return {name: values[place].tolist() for name, place in TALLIES.slices(2).items()}


def test_a_site_s_own_marks_are_those_of_its_file(tmp_path: Path) -> None:
    expected = counted(table(tmp_path), "north")
    config = table(tmp_path)
    file = tmp_path / "data.csv"
    text = file.read_text().replace(",", ";").replace("19.9", "19,9")
    file.write_text(text.replace("90.1", "90,1"))
    schema = tmp_path / "schema.toml"
    marks = '[written]\n"data.csv" = {delimiter = ";", decimal = ","}\n'
    schema.write_text(f"{schema.read_text()}\n{marks}")
    options = {"schema": str(schema), "person": ""}  # others than are cached
    data = replace(config.data, options=tuple(options.items()))
    assert counted(replace(config, data=data), "north") == expected


def test_every_value_is_in_one_bin(tmp_path: Path) -> None:
    values = counted(table(tmp_path), "north")
    assert values["classes"] == [0, 10 * STEPS, 0]
    # below 20, to 55, to 90, above, missing or unreadable
    assert values["age"] == [count * STEPS // 2 for count in (2, 2, 1, 2, 3)]
    # none, typical, another, missing
    assert values["pain"] == [count * STEPS for count in (3, 2, 2, 3)]
    # no, yes, never, missing or neither
    assert values["smoker"] == [count * STEPS for count in (4, 3, 0, 3)]


def test_what_has_no_declared_class_is_counted_as_such(tmp_path: Path) -> None:
    values = counted(table(tmp_path, label="perhaps"), "north")
    assert values["classes"] == [0, 0, 10 * STEPS]
    assert sum(values["age"]) == 5 * STEPS


@pytest.mark.parametrize("partition", ["given", "iid"])
def test_simulated_clients_count_their_own_records(
    tmp_path: Path, partition: str
) -> None:
    config = table(tmp_path, partition)
    records = {name: open_private(config, name)[0] for name in client_names(config)}
    total: Counter[int] = Counter()
    for client, own in records.items():
        values = counted(config, client)
        assert all(
            sum(bins) == len(own) * TALLIES.by_name[name].steps
            for name, bins in values.items()
        )
        rows = range(len(AGES)) if own.rows is None else own.rows
        pains = Counter(PAINS[row] for row in rows)
        assert values["pain"][:2] == [pains["none"] * STEPS, pains["typical"] * STEPS]
        total.update(rows)
    assert len(total) == 8
    assert set(total.values()) == {1}


def test_a_site_counts_by_the_columns_of_its_own_schema(tmp_path: Path) -> None:
    config = table(tmp_path)
    check_columns(TALLIES, config)
    others = {
        "does not have it": Tally("column", column="height", edges=(1.0,)),
        "its values are not": Tally("column", column="pain", values=("none",)),
        "by the column 'age': its values": Tally("column", column="age", values=("1",)),
        "by the column 'pain': its values": Tally(
            "column", column="pain", edges=(1.0,)
        ),
    }
    for message, tally in others.items():
        with pytest.raises(OrderError, match=message):
            check_columns(Tallies({"a": tally}), config)
    with pytest.raises(OrderError, match="does not have it"):
        check_columns(TALLIES, Config())


MISSING = ("", "NA", "?")
NUMBERS = ("3", "3.0", "-1e3", "1e999", "-inf", "0.1", "7.5", "nan", "old", "1_0")
WORDS = ("a", "b", "3", "3.0", "B", "c d")
FLAGS = ("no", "YES", "yes", "1", "never")


def bin_by_hand(text: str, tally: Tally) -> int:
    """Return the bin of one value of the file, as the documentation says it."""
    last = tally.bins(2) - 1
    if tally.edges:
        try:
            number = float(text)
        except ValueError:
            return last
        if "_" in text or number != number:
            return last
        return bisect_right(tally.edges, number)
    name = "3" if text == "3.0" else text
    if tally.column == "flag":
        return {"no": 0, "yes": 1}.get(name.casefold(), last)
    if name in tally.values:
        return tally.values.index(name)
    return last if text in MISSING else last - 1


def many_rows(rng: np.random.Generator, count: int) -> Iterator[tuple[str, str, str]]:
    for _ in range(count):
        number = str(rng.choice([*NUMBERS, *MISSING, f"{rng.normal():.3f}"]))
        word = str(rng.choice([*WORDS, *MISSING]))
        yield number, word, str(rng.choice([*FLAGS, *MISSING]))


def test_bins_are_those_of_a_naive_count(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(
        """
        label = "ill"
        classes = ["no", "yes"]
        confirmed = true
        missing = ["", "NA", "?"]
        [columns]
        number = {kind = "number", range = [-1, 1]}
        unused = {kind = "number", range = [-1, 1]}
        word = {kind = "category", values = ["a", "3", "c d"]}
        flag = {kind = "flag", values = ["no", "yes"]}
        """
    )
    rng = np.random.default_rng(0)
    rows = list(many_rows(rng, 5_000))  # more than are read at once
    lines = [f" {number},{flag},0, {word},no" for number, word, flag in rows]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["number,flag,unused,word,ill", *lines]))
    config = Config.from_dict(
        {
            "data": {
                "source": "table",
                "path": str(path),
                "options": {"schema": str(schema)},
                "partition": "own",
                "classes": ["no", "yes"],
            },
            "aux": {"source": "schema", "path": str(schema)},
            "federation": {"sites": ["north", "south"]},
        }
    )
    edges = tuple(np.unique(rng.normal(size=50).round(3)).tolist())
    tallies = {
        "word": Tally("column", column="word", values=("a", "3", "c d")),
        "number": Tally("column", edges=(*edges, 7.5), column="number"),
        "flag": Tally("column", column="flag", values=("no", "yes")),
    }
    records, _ = open_private(config, "north")
    found = bins_of_columns(Tallies(tallies), config, "north", records)
    columns = dict(
        zip(("number", "word", "flag"), zip(*rows, strict=True), strict=True)
    )
    for name, tally in tallies.items():
        by_hand = [bin_by_hand(text, tally) for text in columns[name]]
        assert found[name].tolist() == by_hand
        assert len(set(by_hand)) >= 3


def peak_memory(config: Config, records: Records, edges: int) -> int:
    """Return how many bytes it takes to find the bins of two columns."""
    inner = tuple(np.linspace(0.0, 1.0, edges).tolist())
    tallies = {
        name: Tally("column", edges=inner, column=name) for name in ("age", "weight")
    }
    tracemalloc.start()
    try:
        bins = bins_of_columns(Tallies(tallies), config, "north", records)
        assert sum(column.nbytes for column in bins.values()) == 2 * 2 * len(records)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_bins(tmp_path: Path) -> None:
    """The server chooses the bins, and a site that runs out of memory has entered the
    look in its account by then.
    """
    config = table(tmp_path)
    schema = tmp_path / "schema.toml"
    numbers = 'weight = {kind = "number", range = [0, 1]}\n'
    schema.write_text(SCHEMA.replace("[columns]\n", f"[columns]\n{numbers}"))
    line = "0.5,0.7,none,no,yes,h0\n"
    peaks: dict[tuple[int, int], int] = {}
    for count in (10_000, 40_000):
        header = "age,weight,pain,smoker,ill,hospital\n"
        (tmp_path / f"{count}.csv").write_text(header + count * line)
        data = replace(config.data, path=str(tmp_path / f"{count}.csv"))
        sized = replace(config, data=data)
        records, _ = open_private(sized, "north")
        for edges in (2, MAX_EDGES):
            peaks[count, edges] = peak_memory(sized, records, edges)
    assert peaks[40_000, MAX_EDGES] < 1.1 * peaks[40_000, 2]
    more = peaks[40_000, MAX_EDGES] - peaks[10_000, MAX_EDGES]
    assert more < 1.2 * 30_000 * 2 * 2  # two bytes for each record and column

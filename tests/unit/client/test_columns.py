"""Counts by the columns of a table: every value of the file is in one bin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config
from fedaux.client.columns import bins_of_columns
from fedaux.client.gate import check_columns
from fedaux.client.looks import count_in_bins
from fedaux.core.failures import OrderError
from fedaux.data.federated import client_names, open_private
from fedaux.messages import Tallies, Tally
from fedaux.messages.tallies import STEPS

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

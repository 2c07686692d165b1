"""A schema's file: what it says, what it refuses, and what it is the same as."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import Exit
from fedaux.data.table_schema import SchemaError, TableSchema

TABLE: dict[str, Any] = {
    "label": "diagnosis",
    "classes": ["healthy", "ill"],
    "site": "hospital",
    "delimiter": ";",
    "decimal": ",",
    "columns": {
        "age": {"kind": "number", "range": [20, 90], "unit": "years"},
        "blood pressure": {"range": [0, 200], "quantiles": [0, 80, 200], "bins": [90]},
        "größe": {"kind": "category", "values": ["klein", 'a "b"']},
        "smoker": {"kind": "flag", "values": ["no", "yes"], "missing": True},
    },
    "dropped": {"patient": "an identifier"},
}


def changed(name: str = "age", **column: Any) -> dict[str, Any]:
    columns = TABLE["columns"] | {name: TABLE["columns"][name] | column}
    return TABLE | {"columns": columns}


def test_a_file_says_what_it_was_written_from(tmp_path: Path) -> None:
    schema = TableSchema.from_dict(TABLE)
    text = schema.to_toml(["for a reader"])
    (tmp_path / "schema.toml").write_text(text, "utf-8")
    assert TableSchema.load(tmp_path / "schema.toml") == schema
    assert text.startswith("# for a reader\n")
    assert 'age = {kind = "number", range = [20, 90], unit = "years"}\n' in text
    assert 'patient = "an identifier"\n' in text


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (changed(range=[5]), "columns.age: a number needs its least and its largest"),
        (changed(range=[9, 2]), "columns.age: a number needs its least"),
        (changed(values=["a"]), "columns.age: a number has no values"),
        (changed(quantiles=[30, 20]), "columns.age: quantiles must increase"),
        (changed(quantiles=[30]), "columns.age: quantiles are at least two"),
        (changed(bins=[10]), "columns.age: bins must lie in the range"),
        (changed(range=["a", "b"]), "columns.age.range must be a list of numbers"),
        (changed(kind="date"), "columns.age.kind"),
        (changed(rnage=[1, 2]), "rnage"),
        (changed("smoker", values=["no"]), "columns.smoker: a flag has two values"),
        (changed("smoker", range=[0, 1]), "columns.smoker: a flag has no range"),
        (changed("größe", values=[]), "columns.größe: a category names its values"),
        (changed("größe", values=["a", "a"]), "values must differ"),
        (TABLE | {"columns": {}}, "a schema needs [columns]"),
        (TABLE | {"columns": {"age": 3}}, "columns.age: it must be a table"),
        (TABLE | {"label": "age"}, "columns.age: this column is the label"),
        (TABLE | {"site": "smoker"}, "columns.smoker: this column is the site"),
        (TABLE | {"delimiter": ";;"}, "delimiter must be one character"),
        (TABLE | {"delimiter": ","}, "delimiter and decimal must differ"),
        (TABLE | {"encoding": "utf-16"}, "encoding"),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        TableSchema.from_dict(table)


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    with pytest.raises(
        SchemaError, match=r"there is no such file\. Run `fedaux init table"
    ):
        TableSchema.load(file)
    file.write_text("label = ")
    with pytest.raises(SchemaError, match=r"schema\.toml: Invalid value") as caught:
        TableSchema.load(file)
    assert caught.value.code == Exit.SETTINGS


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (changed(range=[20, 91]), "age differs in range"),
        (changed("größe", kind="flag", values=["0", "1"]), "größe is a flag, not a"),
        (changed("smoker", values=["0", "1"]), "smoker differs in values"),
        (changed(missing=True, bins=[30]), "age differs in bins and missing"),
        (TABLE | {"classes": ["ill"]}, "classes are ill, not healthy, ill"),
        (
            TABLE | {"columns": {"age": TABLE["columns"]["age"]}},
            "there is no column blood pressure; there is no column größe",
        ),
        (
            TABLE | {"columns": TABLE["columns"] | {"ward": {"range": [0, 1]}}},
            "column ward is added",
        ),
        (
            TABLE | {"columns": dict(reversed(TABLE["columns"].items()))},
            "the columns are in another order",
        ),
    ],
)
def test_differences_are_named_by_column(table: dict[str, Any], said: str) -> None:
    schema = TableSchema.from_dict(TABLE)
    other = TableSchema.from_dict(table)
    assert other.hash != schema.hash
    assert said in "; ".join(other.differences(schema))
    assert schema.differences(schema) == []


def test_the_hash_is_of_what_records_become() -> None:
    schema = TableSchema.from_dict(TABLE)

    def hash_with(**header: Any) -> str:
        return replace(schema, header=replace(schema.header, **header)).hash

    assert hash_with(site="", delimiter=",", decimal=".") == schema.hash
    assert hash_with(classes=("ill", "healthy")) != schema.hash
    assert TableSchema.from_dict(changed(unit="a")).hash == schema.hash
    assert TableSchema.from_dict(changed(range=[20, 91])).hash != schema.hash
    backwards = dict(reversed(TABLE["columns"].items()))
    assert TableSchema.from_dict(TABLE | {"columns": backwards}).hash != schema.hash

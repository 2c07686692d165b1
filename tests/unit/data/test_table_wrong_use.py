"""Wrong use of a table, read aloud: what `fedaux init table` and a site say to each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedaux.core.errors import FedauxError
from fedaux.data.records import UNDECLARED
from fedaux.data.table_choices import propose
from fedaux.data.tables import table
from helpers.own_records import records, site

HEADER = "hospital,age,ward,diagnosis\n"
SCHEMA = """
label = "diagnosis"
classes = ["healthy", "ill"]
site = "hospital"
confirmed = true
[columns]
age = {range = [0, 100]}
ward = {kind = "category", values = ["a", "b"]}
"""


def rows(count: int = 40, first: int = 2, **values: str) -> str:
    """Lines of two hospitals, of which the `first` have these values."""
    lines: list[str] = []
    for number in range(count):
        row = {
            "hospital": ("oslo", "rome")[number % 4 // 2],
            "age": str(20 + number),
            "ward": "ab"[number % 2],
            "diagnosis": ("healthy", "ill")[number % 2],
        }
        if number < first:
            row |= values
        lines.append(",".join(row.values()) + "\n")
    return "".join(lines)


USUAL = HEADER + rows()
ONLY_OSLO = "".join(
    line.replace(",a,", ",,").replace(",b,", ",,") if "rome" in line else line
    for line in USUAL.splitlines(keepends=True)
)
# what `init table` is given beside --data a.csv --label diagnosis --site hospital
REFUSED: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "an empty file": ("", {}, "it is empty"),
    "a header only": (HEADER, {}, "it has no record"),
    "UTF-16": (USUAL.encode("utf-16"), {}, "written in UTF-16. Save it as UTF-8"),
    "no such label": (USUAL, {"label": "disease"}, "has the columns hospital, age"),
    "no such site": (USUAL, {"site": "clinic"}, "has the columns hospital, age"),
    "a record without a label": (
        HEADER + rows(diagnosis=""),
        {},
        "2 of 40 records have none, record 1 for one",
    ),
    "a record without a site": (
        HEADER + rows(hospital="NA"),
        {},
        "2 of 40 records have none",
    ),
    "a line break in quotes": (
        USUAL + 'oslo,50,"a\nb",ill\n',
        {},
        "2 of 42 lines have more or fewer values than the first line has names",
    ),
    "one class": (USUAL.replace("ill", "healthy"), {}, "it has 1 different values"),
    "a number as the label": (
        HEADER + rows(400),
        {"label": "age"},
        "it has 400 different values, and classes are 2 to 100",
    ),
    "a class in capitals": (
        HEADER + rows(diagnosis="Ill "),
        {},
        "'Ill' (2 records) and 'ill' (19) are two spellings of one class",
    ),
    "a class with two spaces": (
        HEADER + rows(diagnosis="not  ill") + rows().replace(",ill", ",not ill"),
        {},
        "are two spellings of one class",
    ),
    "a class in other characters": (
        HEADER + rows(diagnosis="\ufb01ne") + rows().replace(",ill", ",fine"),
        {},
        "are two spellings of one class",
    ),
    "a column twice": (USUAL.replace("ward", "age", 1), {}, "the column 'age' twice"),
    "a column without a name": (USUAL.replace("ward", "", 1), {}, "has no name"),
    "nothing but the label": (
        "diagnosis\n" + "ill\nhealthy\n" * 9,
        {"site": ""},
        "no column is left",
    ),
}
NOTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "public records in another hand": (
        USUAL,
        {"public": USUAL.replace(",", ";")},
        "public.csv is written with ';', '.' and utf-8, as [written] in the schema",
    ),
    "a label in the public file": (
        USUAL,
        {"public": USUAL},
        "public.csv: labels of public records are not read",
    ),
    "a value in capitals": (
        HEADER + rows(ward="A"),
        {},
        "ward: 'A' and 'a' look like two spellings of one value",
    ),
    "a site in capitals": (
        HEADER + rows(hospital="Oslo"),
        {},
        "hospital: 'Oslo' and 'oslo' look like two spellings of one value",
    ),
    "a column that only one site has": (
        ONLY_OSLO,
        {},
        "ward: only oslo has values, so the column says whose a record is",
    ),
    "a line of another length": (
        USUAL + "oslo,50,a,ill,more\n",
        {},
        "1 of 41 lines have more or fewer values",
    ),
    "ranges of private records": (USUAL, {}, "write confirmed = true"),
}
# what a file of a site, or of a simulation, is read as
UNREADABLE: dict[str, tuple[str | bytes, str]] = {
    "an empty file": ("", "it is empty"),
    "UTF-16": (USUAL.encode("utf-16"), "written in UTF-16. Save it as UTF-8"),
    "a column that is not here": (
        USUAL.replace("ward", "Ward", 1),
        "there is no column ward, which the schema has",
    ),
    "a column twice": (USUAL.replace("ward", "age", 1), "the column age twice"),
    "another delimiter": (
        USUAL.replace(",", ";"),
        "its first line is one column, 'hospital;age;ward;diagnosis', by the schema's "
        "delimiter ','",
    ),
}


def write(folder: Path, content: str | bytes, name: str = "a.csv") -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def proposed(folder: Path, content: str | bytes, options: dict[str, Any]) -> list[str]:
    given = {"label": "diagnosis", "site": "hospital"} | options
    if "public" in given:
        given["public"] = write(folder, given["public"], "public.csv")
    return propose(write(folder, content), **given).notes


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, case: str
) -> None:
    content, options, said = REFUSED[case]
    with pytest.raises(FedauxError) as caught:
        proposed(tmp_path, content, options)
    assert said in str(caught.value)


@pytest.mark.parametrize("case", NOTED)
def test_what_looks_wrong_is_noted(tmp_path: Path, case: str) -> None:
    content, options, said = NOTED[case]
    assert said in "; ".join(proposed(tmp_path, content, options))


def test_a_table_that_is_right_has_no_notes(tmp_path: Path) -> None:
    public = USUAL.replace(",diagnosis", "").replace(",healthy", "").replace(",ill", "")
    assert proposed(tmp_path, USUAL, {"public": public}) == []


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_that_the_schema_does_not_fit_says_why(
    tmp_path: Path, case: str
) -> None:
    content, said = UNREADABLE[case]
    schema = write(tmp_path, SCHEMA, "schema.toml")
    file = write(tmp_path, content)
    with pytest.raises(FedauxError) as caught:
        table(file, schema)
    assert said in str(caught.value)
    with pytest.raises(FedauxError) as caught:
        records(
            site("table", file, ("healthy", "ill"), options={"schema": str(schema)})
        )
    assert said in str(caught.value)


def test_a_label_in_another_spelling_is_named(tmp_path: Path) -> None:
    """A site counts it as undeclared, for there one record refuses nothing."""
    schema = write(tmp_path, SCHEMA, "schema.toml")
    file = write(tmp_path, HEADER + rows(diagnosis="ILL"))
    with pytest.raises(FedauxError, match=r"record 1 has 'ILL' .* write it as 'ill'"):
        table(file, schema)
    found = records(
        site("table", file, ("healthy", "ill"), options={"schema": str(schema)})
    )
    assert found.labels.tolist()[:3] == [UNDECLARED, UNDECLARED, 0]

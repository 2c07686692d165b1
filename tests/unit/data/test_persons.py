"""Whose a record is: found in every format, unchanged by what other records say, and nobody is left uncovered."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.data.federated import open_data
from fedaux.data.sources import open_source
from helpers.own_records import Row, records, shades, site, write_arrays, write_images, write_table

TABLES = ["csv", "jsonl", "parquet"]
ROWS = st.builds(Row, st.just("flu"), st.just("words"), st.sampled_from(["ann", "bob", "Ann", "7", " ", "", None]))


def groups(names: list[str]) -> list[int]:
    """Numbers in the order of first appearance, the plain way."""
    return [list(dict.fromkeys(names)).index(name) for name in names]


def together(persons: np.ndarray, without: int) -> list[list[bool]]:
    """Which of the other records belong to one person."""
    kept = np.delete(persons, without)
    same: list[list[bool]] = (kept[:, None] == kept).tolist()
    return same


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=8), other=ROWS, data=st.data())
def test_neighbouring_tables(kind: str, rows: list[Row], other: Row, data: st.DataObject) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    place, found = data.draw(st.integers(0, len(rows) - 1)), []
    for table in (rows, [*rows[:place], other, *rows[place + 1 :]]):
        with tempfile.TemporaryDirectory() as folder:
            found.append(records(site(kind, write_table(kind, Path(folder), table), person="person")).persons)
        assert found[-1].tolist() == groups([row.person or "" for row in table])
    assert together(found[0], place) == together(found[1], place)


def test_a_line_that_is_no_object_is_nobodys_in_particular(tmp_path: Path) -> None:
    file = write_table("jsonl", tmp_path, [Row("flu", "a", "ann"), Row("flu", "b"), Row("cold", "c", "ann")])
    with file.open("a") as stream:
        stream.write("{\n[1]\n")
    assert records(site("jsonl", file, person="person")).persons.tolist() == [0, 1, 0, 1, 1]


def test_a_number_is_one_person_however_it_is_stored(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"person": 3}\n{"person": 3.0}\n{"person": "3"}\n{"person": NaN}\n{}\n')
    assert records(site("jsonl", tmp_path / "a.jsonl", person="person")).persons.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(
    ("persons", "numbers"),
    [
        ([7, -1, 7, 0], [0, 1, 0, 2]),
        (["ann", "bob", "ann", ""], [0, 1, 0, 2]),
        ([7.0, np.nan, 7.0, np.nan], [0, 1, 0, 1]),
    ],
)
def test_arrays(tmp_path: Path, kind: str, persons: list[object], numbers: list[int]) -> None:
    path = write_arrays(kind, tmp_path, [0, 1, 2, 0], persons)
    found = records(site(kind, path, person="patient"))
    assert found.persons.tolist() == numbers
    assert found.take(np.array([3, 0, 2])).persons.tolist() == [numbers[3], numbers[0], numbers[2]]
    assert records(site(kind, path)).person is None


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_new_person_in_an_array_leaves_the_others(tmp_path: Path, kind: str) -> None:
    found = []
    for number, second in enumerate(("bob", "ann", "eve")):
        (tmp_path / str(number)).mkdir()
        path = write_arrays(kind, tmp_path / str(number), [0, 1, 2, 0], ["ann", second, "bob", "ann"])
        found.append(together(records(site(kind, path, person="patient")).persons, 1))
    assert found[0] == found[1] == found[2]


def test_arrays_that_do_not_fit(tmp_path: Path) -> None:
    write_arrays("npy", tmp_path, [0, 1], [1, 2, 3])
    with pytest.raises(ValueError, match="one person for each of the 2 rows of x, not 3"):
        records(site("npy", tmp_path, person="patient"))
    with pytest.raises(FileNotFoundError, match=r"nurse\.npy is missing; data\.person = 'nurse' names it"):
        records(site("npy", tmp_path, person="nurse"))
    with pytest.raises(ValueError, match=r"has no array nurse but x, y, patient; data\.person must be one of them"):
        records(site("npz", write_arrays("npz", tmp_path, [0, 1], [1, 2]), person="nurse"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_is_not_there(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    file = write_table(kind, tmp_path, [Row("flu")])
    with pytest.raises(ValueError, match="has no column patient, there is label, text, person"):
        records(site(kind, file, person="patient"))
    with pytest.raises(ValueError, match="has no column patient"):
        open_source(kind, file, person="patient")


def test_images_by_a_pattern_of_their_paths(tmp_path: Path) -> None:
    files = ["flu/p1_a.png", "flu/p2_a.png", "cold/p1_b.png", "none/stray.png", "cold/p_b.png"]
    write_images(tmp_path / "train", files)
    for pattern, persons in {
        r"/p([0-9]+)_": ["1", "2", "1", "", ""],
        "p[0-9]": ["p1", "p2", "p1", "", ""],
        "^(?:flu/(p.)|cold)": ["p1", "p2", "", "", ""],  # a group that took no part in the match
        "^[a-z]+": ["flu", "flu", "cold", "none", "cold"],
    }.items():
        found = records(site("images", tmp_path, person=pattern))
        assert found.persons.tolist() == groups([persons[shade] for shade in shades(found)])
        simulated = open_source("images", tmp_path, person=pattern).train
        assert simulated.persons.tolist() == groups([persons[shade] for shade in shades(simulated)])
    with pytest.raises(ConfigError, match=r"data\.person = '\(' is no regular expression"):
        records(site("images", tmp_path, person="("))


def test_a_new_person_among_images_leaves_the_others(tmp_path: Path) -> None:
    found = []
    for name in ("p1_z", "p2_z", "p9_z", "nobody"):
        folder = write_images(tmp_path / name, ["flu/p1_a.png", "flu/p2_a.png", "cold/p1_b.png", f"flu/{name}.png"])
        own = records(site("images", folder, person="p[0-9]"))
        by_shade = dict(zip(shades(own), own.persons.tolist(), strict=True))
        found.append((by_shade[0] == by_shade[2], by_shade[0] == by_shade[1], by_shade[1] == by_shade[2]))
    assert found == [(True, False, False)] * 4


def test_a_source_that_knows_no_persons_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'digits' cannot say whose a record is: data\.person = 'patient'") as told:
        records(site("digits", person="patient"))
    assert told.value.code == Exit.SETTINGS
    head = "import numpy as np\nfrom fedaux import Corpus, Records\n"
    body = "def load(person=''):\n    return Corpus(Records(np.zeros((3, 1)), np.zeros(3, int), person=np.arange(3)))\n"
    (tmp_path / "source_of_persons.py").write_text(head + body)
    monkeypatch.syspath_prepend(tmp_path)
    assert records(site("source_of_persons:load", person="patient")).persons.tolist() == [0, 1, 2]
    sys.modules.pop("source_of_persons", None)


def test_clients_of_a_simulation_know_whose_their_records_are(tmp_path: Path) -> None:
    rows = [Row("flu" if i % 2 else "cold", f"text {i}", f"p{i % 7}") for i in range(60)]
    file = write_table("csv", tmp_path, rows)
    overrides = ["data.source=csv", f"data.path={file}", "data.person=person", "data.clients=3", "data.alpha=100"]
    data = open_data(Config.from_dict({}, overrides))
    for index in range(3):
        own = data.client(index)
        assert own.persons.tolist() == [int(text.split()[1]) % 7 for text in own.gather()]

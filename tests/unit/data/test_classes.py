"""What a label becomes depends on its own record alone, and nobody opens data to say what the classes are."""

from __future__ import annotations

import re
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
from fedaux.data.classes import relabel
from fedaux.data.federated import PublicData, class_names, open_data, open_private, open_public
from fedaux.data.records import Corpus, Records
from fedaux.data.sources import open_source
from helpers.own_records import CLASSES, Row, records, shades, site, write_arrays, write_images, write_table

TABLES = ["csv", "jsonl", "parquet"]
LABELS = st.sampled_from([*CLASSES, "aids", "0", "Flu", "", None])
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
ROWS = st.builds(Row, LABELS, TEXTS)


def number(label: str | None) -> int:
    return CLASSES.index(label) if label in CLASSES else -1


# Tables


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=8), other=ROWS, data=st.data())
def test_neighbouring_tables_differ_in_one_record(kind: str, rows: list[Row], other: Row, data: st.DataObject) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    place = data.draw(st.integers(0, len(rows) - 1))
    for table in (rows, [*rows[:place], other, *rows[place + 1 :]]):
        with tempfile.TemporaryDirectory() as folder:
            found = records(site(kind, write_table(kind, Path(folder), table)))
        assert found.labels.tolist() == [number(row.label) for row in table]
        assert found.x.tolist() == [row.text or "" for row in table]


MALFORMED = {
    "csv": ["flu", ",", '"flu', "flu,a,b,c,d", "\udcff,\udcff", "x" * 200_000],
    "jsonl": ["{", "[1]", "3", '{"text": 1', '{"label": ["flu"]}', "[" * 100_000, "9" * 5000, '"\udcff"', "{}"],
}


@pytest.mark.parametrize(("kind", "line"), [(kind, line) for kind, lines in MALFORMED.items() for line in lines])
def test_a_malformed_row_at_the_end_changes_no_other(tmp_path: Path, kind: str, line: str) -> None:
    file = write_table(kind, tmp_path, [Row("flu", "a"), Row("cold", "b")])
    with file.open("ab") as stream:
        stream.write(f"{line}\n".encode("utf-8", "surrogateescape"))
    found = records(site(kind, file))
    assert len(found) == 3
    assert found.labels.tolist()[:2] == [0, 1]
    assert found.x.tolist()[:2] == ["a", "b"]
    assert found.labels[2] == (0 if kind == "csv" and "flu" in line and '"' not in line else -1)
    assert isinstance(found.x[2], str)


def test_text_that_no_tokenizer_takes_is_mended(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"label": "flu", "text": "half \\ud83d"}\n')
    (found,) = records(site("jsonl", tmp_path / "a.jsonl")).x
    assert found == "half ?"


def test_labels_that_are_numbers_are_their_names_however_they_are_stored(tmp_path: Path) -> None:
    """A label that is missing makes a column of whole numbers one of floats."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for labels in ([1, 0, 2], [1.0, 0.0, None], [1.0, 0.0, float("nan")]):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(pa.table({"label": labels, "text": ["a", "b", "c"]}), file)
        assert records(site("parquet", file, ("0", "1"))).labels.tolist() == [1, 0, -1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_nobody_has_is_an_error(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    file = write_table(kind, tmp_path, [Row("flu")])
    with pytest.raises(ValueError, match=r"has no column diagnosis, there is label, text, person; name the columns"):
        records(site(kind, file, options={"label": "diagnosis"}))


def test_a_simulation_still_says_which_record_to_mend(tmp_path: Path) -> None:
    file = write_table("jsonl", tmp_path, [Row("flu"), Row(None)])
    with pytest.raises(ValueError, match="record 1: nothing in label"):
        open_source("jsonl", file)
    file.write_text("{\n")
    with pytest.raises(ValueError, match="Expecting property name"):
        open_source("jsonl", file)


# Arrays


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(("other", "becomes"), [(2, 2), (3, -1), (-7, -1), (99, -1), (np.nan, -1), (1.5, -1)])
def test_neighbouring_arrays_differ_in_one_record(
    tmp_path: Path, cache: Path, kind: str, other: float, becomes: int
) -> None:
    assert records(site(kind, write_arrays(kind, tmp_path, [1, 0, 2, 0]))).labels.tolist() == [1, 0, 2, 0]
    (tmp_path / "other").mkdir()
    path = write_arrays(kind, tmp_path / "other", [1, other, 2, 0])
    assert records(site(kind, path)).labels.tolist() == [1, becomes, 2, 0]


def test_names_beside_arrays_are_matched_by_name(tmp_path: Path) -> None:
    write_arrays("npy", tmp_path, [0, 1, 2, 3])
    (tmp_path / "classes.txt").write_text("cold\naids\nflu\n")
    assert records(site("npy", tmp_path)).labels.tolist() == [1, -1, 0, -1]


def test_plain_labels_are_no_names_and_a_simulation_calls_them_by_number(tmp_path: Path) -> None:
    x = np.zeros((40, 2), np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(40) % 2, x_test=x[:2], y_test=np.array([0, 3]))
    assert open_source("npz", tmp_path / "d.npz").classes == ()
    overrides = [f"data.path={tmp_path / 'd.npz'}", "data.source=npz", "data.clients=2", "data.alpha=100"]
    config = Config.from_dict({}, overrides)
    assert open_data(config).classes == class_names(config, "client-000") == ("0", "1", "2", "3")


# Images


def test_neighbouring_folders_of_images_differ_in_one_record(tmp_path: Path, cache: Path) -> None:
    files = ["cold/a.png", "flu/b.png", "flu/deep/c.png", "flu/d.png"]
    expected = {0: 1, 1: 0, 2: 0, 3: 0}
    for other, label in (("none/d.png", 2), ("aids/d.png", -1), ("d.png", -1), ("flu/d.png", 0)):
        folder = write_images(tmp_path / other.replace("/", "-"), [*files[:3], other])
        found = records(site("images", folder))
        assert dict(zip(shades(found), found.labels.tolist(), strict=True)) == expected | {3: label}


def test_the_old_option_for_images_refuses_no_record_at_a_site(tmp_path: Path, cache: Path) -> None:
    write_images(tmp_path, ["cold/a.png", "aids/b.png"])
    assert sorted(records(site("images", tmp_path, options={"classes": ["cold"]})).labels) == [-1, 1]
    with pytest.raises(ValueError, match="not all among the classes"):
        open_source("images", tmp_path, classes=["cold"])


# What the classes are


@pytest.mark.parametrize("source", ["csv", "jsonl", "parquet", "npy", "npz", "images", "broken_source:load"])
def test_classes_are_known_without_the_data(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_source.py").write_text("def load(path):\n    raise OSError('opened')\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "classes.txt").write_text("\ufeffcold \r\nflu\r\n\r\n", "utf-8")
    (tmp_path / "damaged").write_bytes(b"\xff\0damaged")
    for path in (tmp_path / "nowhere", tmp_path / "damaged"):
        assert class_names(site(source, path), "a") == CLASSES
        assert class_names(site(source, path, ()), "a") == ("cold", "flu")
        if (source, path.name) != ("jsonl", "damaged"):  # any file has lines, and a line may be damaged
            with pytest.raises((OSError, ValueError)):
                open_private(site(source, path), "a")
    sys.modules.pop("broken_source", None)


def test_the_file_is_in_the_folder_of_the_data_or_beside_the_file_of_each_client(tmp_path: Path) -> None:
    for client in ("a", "b"):
        (tmp_path / client).mkdir()
        (tmp_path / client / "classes.txt").write_text(f"one\nof {client}")
    for path in (tmp_path / "{client}", tmp_path / "{client}" / "records.csv"):
        assert class_names(site("csv", path, ()), "b") == ("one", "of b")


def test_who_has_declared_nothing_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        class_names(site("csv", tmp_path / "{client}" / "records.csv", ()), "a")
    assert 'write their names into [data], classes = ["first", "second", ...]' in str(told.value)
    assert f"or one a line into {tmp_path / 'a' / 'classes.txt'}" in str(told.value)
    assert told.value.code == Exit.SETTINGS
    with pytest.raises(ConfigError, match=r"at every site\.$"):
        open_private(site("digits", classes=()), "a")


@pytest.mark.parametrize(("text", "reason"), [("", "one class a line"), ("a\n\nb", "empty line"), ("a\na", "differ")])
def test_a_file_that_declares_nothing_sensible(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "classes.txt").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        class_names(site("npy", tmp_path, ()), "a")


def test_declaring_what_a_corpus_says_itself_changes_nothing() -> None:
    y = np.array([2, 0, 1])
    corpus = Corpus(Records(np.zeros((3, 1)), y), Records(np.zeros((3, 1))), CLASSES)
    found = relabel(corpus, CLASSES)
    assert (found.train.labels.tolist(), found.test and found.test.y, found.classes) == ([2, 0, 1], None, CLASSES)
    assert relabel(corpus, ("none", "flu")).train.labels.tolist() == [0, 1, -1]


# The server, whose test records are no secret


def test_the_servers_test_data_are_declared_alike(tmp_path: Path) -> None:
    np.savez(tmp_path / "aux.npz", x=np.zeros((4, 2), np.float32))

    def public(folder: str, names: str) -> PublicData:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "classes.txt").write_text(names)
        table = site("npy", write_arrays("npy", tmp_path / folder, [2, 0, 1])).to_dict()
        return open_public(Config.from_dict(table | {"aux": {"source": "npz", "path": str(tmp_path / "aux.npz")}}))

    found = public("fine", "none\ncold\nflu\naids")
    assert (found.test.labels.tolist(), found.classes) == ([0, 2, 1], CLASSES)
    told = "labels aids are not among the declared classes flu, cold, none; declare them in data.classes"
    with pytest.raises(ValueError, match=re.escape(told)):
        public("strange", "none\nflu\naids")


def test_a_server_needs_no_persons_in_its_test_data() -> None:
    found = open_public(site("digits", classes=tuple("0123456789"), person="patient"))
    assert found.test.person is None


def test_a_simulation_may_declare_a_class_that_nobody_has() -> None:
    ten = tuple("0123456789")
    assert open_data(Config.from_dict({"data": {"classes": (*ten, "?")}})).classes == (*ten, "?")
    with pytest.raises(ValueError, match="labels 9 are not among the declared classes"):
        open_data(Config.from_dict({"data": {"classes": ten[:9]}}))

"""Tables among the arguments of `fedaux.run`: whatever has named columns is read as the
same file would be by `fedaux init table`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedaux
from fedaux.core.errors import FedauxError
from fedaux.data.federated import open_data
from fedaux.data.table_schema import TableSchema
from fedaux.data.tables import from_frame, schema_of_records
from fedaux.runs.arguments import make_config

pandas = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
COUNT = 120
HOSPITALS = np.array(["oslo", "paris", "rome"])


def registry(count: int = COUNT) -> Any:
    """Numbers with gaps, words, an identifier and a site."""
    age = RNG.integers(20, 90, count).astype(float)
    age[::9] = np.nan
    return pandas.DataFrame(
        {
            "patient": [f"P{number}" for number in range(count)],
            "hospital": HOSPITALS[np.arange(count) % 3],
            "age": age,
            "pressure": RNG.normal(120, 15, count).round(1),
            "ward": RNG.choice(["a", "b", "c"], count),
            "diagnosis": np.where(np.arange(count) % 2, "ill", "healthy"),
        }
    )


FRAME = registry()
PUBLIC = registry(102).drop(columns=["hospital", "diagnosis"])
WORDS = {"label": "diagnosis", "site": "hospital"}


def of_frame(kind: str, folder: Path) -> Any:
    """The same table as something else."""
    if kind == "frame":
        return FRAME
    if kind == "dictionary of arrays":
        return {name: FRAME[name].to_numpy() for name in FRAME}
    if kind == "structured array":
        return FRAME.to_records(index=False)
    if kind == "list of dictionaries":
        return FRAME.to_dict("records")
    file = folder / f"registry.{kind}"
    if kind == "csv":
        FRAME.to_csv(file, index=False)
        return str(file)
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(file, index=False)
    return file


KINDS = (
    "frame",
    "dictionary of arrays",
    "structured array",
    "list of dictionaries",
    "csv",
    "parquet",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_any_kind_is_the_same_records(kind: str, tmp_path: Path) -> None:
    config = make_config("fedavg", data=of_frame(kind, tmp_path), **WORDS)
    expected = make_config("fedavg", data=FRAME, **WORDS)
    data = open_data(config)
    other = open_data(expected)
    assert np.array_equal(data.private.gather(), other.private.gather())
    assert data.classes == ("healthy", "ill")
    assert data.clients == ("oslo", "paris", "rome")
    assert config.data.partition == "given"
    schema = schema_of_records(config.data)
    assert schema is not None
    assert list(schema.columns) == ["age", "pressure", "ward"]
    assert schema.dropped["hospital"] == "the site's name"
    assert [spec.name for spec in config.prototypes] == ["tabular"]


def test_the_schema_is_that_of_public_rows(tmp_path: Path) -> None:
    config = make_config("fedavg", data=FRAME, public=PUBLIC, **WORDS)
    schema = schema_of_records(config.data)
    assert schema is not None
    assert schema.header.confirmed
    assert not any("own records" in note for note in open_data(config).notes)
    assert np.array_equal(
        open_data(config).aux.gather(), from_frame(PUBLIC, schema, False).train.x
    )


def test_without_public_rows_it_is_that_of_the_records_with_a_warning() -> None:
    config = make_config("fedavg", data=FRAME, **WORDS)
    notes = " ".join(open_data(config).notes)
    assert "ranges and values come from your own records" in notes
    assert "patient (an identifier: nearly every value is another)" in notes
    assert len(open_data(config).aux) == 1000  # drawn: no one's
    shared = make_config("fedavg", data=FRAME, aux={"fraction": 0.25}, **WORDS)
    assert shared.aux.source == ""


def test_a_list_has_the_table_of_each_site(tmp_path: Path) -> None:
    parts = [part for _, part in FRAME.groupby("hospital")]
    config = make_config("fedavg", data=parts, label="diagnosis", site="hospital")
    assert (config.data.partition, len(open_data(config).parts)) == ("given", 3)
    schema = schema_of_records(config.data)
    assert schema is not None
    assert schema.dropped["hospital"] == "the site's name"
    files = []
    for name, part in zip(HOSPITALS, parts, strict=True):
        part.drop(columns="hospital").to_csv(tmp_path / f"{name}.csv", index=False)
        files.append(tmp_path / f"{name}.csv")
    alone = make_config("fedavg", data=parts[:1], label="diagnosis")
    assert len(open_data(alone).parts) == 1
    named = make_config("fedavg", data=files, label="diagnosis")
    assert named.federation.sites == tuple(HOSPITALS)
    folder = make_config("fedavg", data=tmp_path, label="diagnosis")
    assert folder == named
    with pytest.raises(FedauxError, match="clients = 5: data are those of 3 clients"):
        make_config("fedavg", data=files, label="diagnosis", clients=5)


def test_a_schema_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        'label = "diagnosis"\nclasses = ["ill", "healthy"]\nsite = "hospital"\n'
        "[columns]\nage = {range = [0, 100], missing = true}\n"
    )
    for schema in (file, str(file), TableSchema.load(file)):
        config = make_config("fedavg", data=FRAME, test=FRAME[:9], schema=schema)
        data = open_data(config)
        assert data.classes == ("ill", "healthy")
        assert data.private.shape == (2,)
        assert len(data.test) == 9
    corpus = from_frame(FRAME, file)
    config = make_config(
        "fedavg", data=corpus, public=PUBLIC, partition="given", clients=3
    )
    assert open_data(config).aux.shape == (2,)
    assert schema_of_records(config.data) == TableSchema.load(file)


def test_a_private_head_of_a_table_has_what_init_chooses() -> None:
    def head(**words: Any) -> tuple[str, str, int]:
        config = make_config("private-head", data=FRAME, **WORDS, **words)
        privacy = config.privacy
        return config.prototypes[0].name, privacy.scorer, privacy.embedding_dim

    assert head(public=PUBLIC, epsilon=1.0) == ("tabular", "class-moments", 0)
    assert head(public=PUBLIC, epsilon=0.1) == ("linear", "class-moments", 0)
    assert head(public=PUBLIC, epsilon=1.0, model="mlp")[0] == "mlp"
    assert head(epsilon=1.0) == ("linear", "class-embedding", 32)
    assert head(epsilon=1.0, scorer="class-moments")[1:] == ("class-moments", 0)


def test_a_table_by_its_settings_is_scaled(tmp_path: Path) -> None:
    """Such a table had random features of `mlp`."""
    source = {"source": "table", "path": "a.csv", "options": {"schema": "s.toml"}}
    for method, network in (("private-head", "linear"), ("fedaux", "tabular")):
        assert make_config(method, data=source).prototypes[0].name == network
    on_heads = make_config("fedaux", data=source, head_only=True)
    assert on_heads.prototypes[0].name == "linear"
    only_public = make_config("private-head", public={**source})
    assert only_public.prototypes[0].name == "linear"
    assert make_config("fedaux").prototypes[0].name == "mlp"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"data": FRAME}, "Name it: label='…', one of patient, hospital, age"),
        ({"data": [FRAME, FRAME]}, "Name it: label='…', one of patient, hospital"),
        ({"data": FRAME, "label": "x"}, "Cannot take 'x' as label"),
        ({"data": [], "label": "x"}, "an empty list has data of no client"),
        ({"data": np.zeros((3, 2)), "label": "x"}, "a ndarray has no named columns"),
        ({"data": (FRAME, [0] * COUNT), "label": "x"}, "about the columns of a table"),
        ({"data": (FRAME, [0] * COUNT)}, "Give it whole, data=frame, with label"),
        ({"label": "x"}, "about the columns of a table"),
        ({"data": "registry.xlsx", "label": "x"}, "its name ends in neither"),
        (
            {"data": FRAME, "label": "diagnosis", "public": np.zeros((9, 2))},
            "Cannot read public",
        ),
        (
            {"data": (np.zeros((9, 2)), [0, 1, 1] * 3), "public": PUBLIC},
            "public: it is a DataFrame, and data are none",
        ),
        (
            {"data": {"a": [1, 2], "b": [1, 2, 3]}, "label": "b"},
            r"its columns have \{'a': 2, 'b': 3\} values",
        ),
    ],
)
def test_wrong_use_of_tables_is_named(words: dict[str, Any], said: str) -> None:
    with pytest.raises(FedauxError, match=said):
        make_config("fedavg", **words)


def test_a_csv_that_is_no_text_says_how_it_is_read(tmp_path: Path) -> None:
    """It said "nothing in text, label"."""
    file = of_frame("csv", tmp_path)
    with pytest.raises(ValueError, match="in Python with label='…'"):
        open_data(make_config("fedavg", data=file))


def test_a_label_of_another_column_is_no_feature(tmp_path: Path) -> None:
    config = make_config("private-head", data=FRAME, public=PUBLIC, **WORDS)
    schema = schema_of_records(config.data)
    assert schema is not None
    for words in ({"label": "ward"}, {"label": "diagnosis", "site": "ward"}):
        with pytest.raises(FedauxError, match="the schema has it among the columns"):
            make_config("private-head", data=FRAME, schema=schema, **words)


def test_a_frame_with_a_column_without_a_name_keeps_its_persons() -> None:
    columns = {"age": [30, 40, 50, 60], "y": list("abab"), "pid": list("pppq")}
    text = """
label = "y"
classes = ["a", "b"]
confirmed = true
[columns]
age = {kind = "number", range = [0, 100]}
"""
    schema = TableSchema.from_dict(tomllib.loads(text))
    expected = from_frame(columns, schema, person="pid").train.persons
    indexed = {"": [0, 1, 2, 3], **columns}
    for declared in ((), ("a", "b")):
        read = from_frame(indexed, schema, person="pid", declared=declared)
        assert read.train.persons.tolist() == expected.tolist() == [0, 0, 0, 1]


def test_the_card_says_that_the_schema_shows_private_records(tmp_path: Path) -> None:
    frame = FRAME.drop(columns=["patient"])
    cards = {}
    for name, public in {"none": None, "given": PUBLIC}.items():
        given = {} if public is None else {"public": public}
        result = fedaux.run(
            "private-head", tmp_path / name, data=frame, **WORDS, **given
        )
        result.model.save_pretrained(tmp_path / f"{name}-model")
        cards[name] = (tmp_path / f"{name}-model" / "README.md").read_text()
    guarantee = "The same guarantee therefore covers the"
    shown = "may be those of private records"
    assert guarantee in cards["given"]
    assert shown not in cards["given"]
    assert shown in cards["none"]
    assert guarantee not in cards["none"]

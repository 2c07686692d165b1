"""Private, public and test data: what simulations and sites open, and what is refused
before training.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core.errors import import_function
from fedaux.data import overlap
from fedaux.data.federated import (
    FederatedData,
    ServerData,
    class_names,
    client_name,
    client_names,
    open_data,
    open_private,
    open_public,
)
from fedaux.data.overlap import (
    OverlapError,
    Shared,
    refuse_overlap,
    refuse_same_source,
    shared_records,
)
from fedaux.data.partition import partition
from fedaux.data.records import Records, RecordsError
from fedaux.data.sources import SOURCES, can_be_private, open_source
from helpers.own_records import CLASSES, Row, site, write_arrays, write_table
from helpers.pictures import pictures, save_png

SOURCE = """
import numpy as np
from fedaux.data.records import Corpus, Records

x = np.arange(80, dtype=np.float32).reshape(40, 2)

def corpus(rows, labels, test):
    return Corpus(Records(rows, np.array(labels)), Records(x[:2], np.array(test)), ("a", "b"))

def fine(): return corpus(x, [0, 1] * 20, [0, 1])
def training(): return corpus(x, [0, 2] * 20, [0, 1])
def negative(): return corpus(x, [0, -1] * 20, [0, 1])
def testing(): return corpus(x, [0, 1] * 20, [0, 5])
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "my_checked_source.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_checked_source", None)


def opened(function):
    settings = [
        f"data.source=my_checked_source:{function}",
        "data.clients=2",
        "data.alpha=100",
    ]
    return open_data(Config.from_dict({}, settings))


def test_clients_have_their_names_in_order():
    data = opened("fine")
    assert (
        list(data.clients)
        == client_names(Config.from_dict({}, ["data.clients=2"]))
        == ["client-000", "client-001"]
    )
    assert [data.index_of[name] for name in data.clients] == [0, 1]
    assert sum(len(data.client(i)) for i in range(2)) + len(data.aux) == 40


@pytest.mark.parametrize(
    ("function", "part"),
    [("training", "training"), ("negative", "training"), ("testing", "test")],
)
def test_labels_beyond_the_classes_are_refused(function, part):
    with pytest.raises(
        ValueError,
        match=rf"the {part} part needs records with labels 0\.\.1, one for each class",
    ):
        opened(function)


def test_held_out_rows_keep_the_order_of_the_file():
    """Rows of a mapped file are read forwards."""
    data = open_data(Config())
    assert len(data.test) > 0
    for part in (data.test, data.aux):
        assert np.all(np.diff(part.rows) > 0)


def test_clients_of_a_simulation_know_whose_their_records_are(tmp_path: Path) -> None:
    rows = [
        Row("flu" if i % 2 else "cold", f"text {i}", f"p{i % 7}") for i in range(60)
    ]
    file = write_table("csv", tmp_path, rows)
    overrides = [
        "data.source=csv",
        f"data.path={file}",
        "data.person=person",
        "data.clients=3",
        "data.alpha=100",
    ]
    data = open_data(Config.from_dict({}, overrides))
    for index in range(3):
        own = data.client(index)
        assert own.persons.tolist() == [
            int(text.split()[1]) % 7 for text in own.gather()
        ]


def test_plain_labels_are_no_names_and_a_simulation_calls_them_by_number(
    tmp_path: Path,
) -> None:
    x = np.zeros((40, 2), np.float32)
    overrides = ["data.source=npz", "data.clients=2", "data.alpha=100"]
    for name, first in (("zero", 0), ("one", 1)):
        y = np.arange(40) % 2 + first
        np.savez(tmp_path / f"{name}.npz", x=x, y=y, x_test=x[:2], y_test=y[:2])
        assert open_source("npz", tmp_path / f"{name}.npz").classes == ()
        config = Config.from_dict({}, [*overrides, f"data.path={tmp_path / name}.npz"])
        assert (
            open_data(config).classes
            == class_names(config, "client-000")
            == (str(first), str(first + 1))
        )
        assert (
            set(open_data(config).private.labels.tolist())
            == set(open_data(config).test.labels.tolist())
            == {0, 1}
        )
    np.savez(
        tmp_path / "odd.npz",
        x=x,
        y=np.arange(40) % 2,
        x_test=x[:2],
        y_test=np.array([0, 3]),
    )
    with pytest.raises(
        RecordsError,
        match="they have the label 3, which no training record has",
    ):
        open_data(
            Config.from_dict({}, [*overrides, f"data.path={tmp_path / 'odd.npz'}"])
        )


@pytest.mark.parametrize(
    "source", ["csv", "jsonl", "parquet", "npy", "npz", "images", "broken_source:load"]
)
def test_classes_are_known_without_the_data(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_source.py").write_text(
        "def load(path):\n    raise OSError('opened')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "classes.txt").write_text("\ufeffcold \r\nflu\r\n\r\n", "utf-8")
    (tmp_path / "damaged").write_bytes(b"\xff\0damaged")
    for path in (tmp_path / "nowhere", tmp_path / "damaged"):
        assert class_names(site(source, path), "a") == CLASSES
        assert class_names(site(source, path, ()), "a") == ("cold", "flu")
        # any file has lines, and a line may be damaged
        if (source, path.name) != ("jsonl", "damaged"):
            with pytest.raises((OSError, ValueError)):
                open_private(site(source, path), "a")
    sys.modules.pop("broken_source", None)


def test_the_servers_test_data_are_declared_alike(tmp_path: Path) -> None:
    np.savez(tmp_path / "aux.npz", x=np.zeros((4, 2), np.float32))

    def public(folder: str, names: str) -> ServerData:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "classes.txt").write_text(names)
        table = site("npy", write_arrays("npy", tmp_path / folder, [2, 0, 1])).to_dict()
        return open_public(
            Config.from_dict(
                table | {"aux": {"source": "npz", "path": str(tmp_path / "aux.npz")}}
            )
        )

    found = public("fine", "none\ncold\nflu\naids")
    assert (found.test.labels.tolist(), found.classes) == ([0, 2, 1], CLASSES)
    told = "labels aids are not among the declared classes flu, cold, none. Declare them in data.classes"
    with pytest.raises(ValueError, match=re.escape(told)):
        public("strange", "none\nflu\naids")


def test_a_server_needs_no_persons_in_its_test_data() -> None:
    found = open_public(site("digits", classes=tuple("0123456789"), person="patient"))
    assert found.test.person is None


def test_a_simulation_may_declare_a_class_that_nobody_has() -> None:
    ten = tuple("0123456789")
    assert open_data(Config.from_dict({"data": {"classes": (*ten, "?")}})).classes == (
        *ten,
        "?",
    )
    with pytest.raises(ValueError, match="labels 9 are not among the declared classes"):
        open_data(Config.from_dict({"data": {"classes": ten[:9]}}))


def test_one_name_needs_no_others() -> None:
    config = Config.from_dict({}, ["data.clients=1200"])
    assert [client_name(config, i) for i in range(1200)] == client_names(config)
    with pytest.raises(IndexError):
        client_name(config, 1200)
    sites = Config.from_dict(
        {"federation": {"sites": ["berlin", "paris"]}, "data": {"clients": 2}}
    )
    assert (
        [client_name(sites, 0), client_name(sites, 1)]
        == client_names(sites)
        == ["berlin", "paris"]
    )
    assert open_data(sites).clients == ("berlin", "paris")


def rows_of(data: FederatedData) -> list[set[int]]:
    """Test or validation, auxiliary and private records, by their position in the
    source.
    """
    return [
        set(np.asarray(part.rows).tolist())
        for part in (data.test, data.aux, data.private)
    ]


def test_validation_records_are_held_out_of_the_private_ones_alone() -> None:
    test, aux, private = rows_of(open_data(Config()))
    validation, same_aux, rest = rows_of(
        open_data(Config.from_dict({}, ["data.validation_fraction=0.25"]))
    )
    assert same_aux == aux
    assert validation | rest == private
    assert validation & (rest | aux | test) == set()
    assert len(validation) == round(0.25 * len(private))


def test_splits_with_one_test_seed_have_the_same_test_records() -> None:
    test, *_ = rows_of(open_data(Config()))
    assert rows_of(open_data(Config.from_dict({}, ["data.test_seed=0"])))[0] == test
    other, aux, private = rows_of(
        open_data(Config.from_dict({}, ["seed=7", "data.test_seed=0"]))
    )
    assert other == test
    assert test & (aux | private) == aux & private == set()
    assert len(test | aux | private) == 1797
    assert private != rows_of(open_data(Config()))[2]
    assert rows_of(open_data(Config.from_dict({}, ["seed=7"])))[0] != test


POISONED = """
import numpy as np
from fedaux.data.records import Corpus, Records

rng = np.random.default_rng(0)
x, y = rng.normal(size=(200, 4)).astype(np.float32), rng.integers(0, 3, 200)

def own(poison=0):
    test = np.full(50, 99) if poison else y[:50]
    return Corpus(Records(x, y), Records(x[:50], test))

def drawn(poison="[]"):
    labels, rows = y.copy(), np.array(eval(poison), dtype=int)
    labels[rows] = 77
    return Corpus(Records(x, labels))
"""


@pytest.mark.parametrize("function", ["own", "drawn"])
def test_nothing_of_a_tuning_run_depends_on_test_labels(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that no class has would be refused, or would change the classes, wherever
    they are looked at.
    """
    (tmp_path / "my_poisoned_source.py").write_text(POISONED)
    monkeypatch.syspath_prepend(tmp_path)
    table: dict[str, Any] = {
        "seed": 3,
        "data": {
            "source": f"my_poisoned_source:{function}",
            "clients": 2,
            "alpha": 1.0,
        },
    }
    plain = {"options": {}, "test_seed": 0}
    test_rows = np.asarray(
        open_data(Config.from_dict({**table, "data": table["data"] | plain})).test.rows
    )
    poison = {"poison": 1} if function == "own" else {"poison": str(test_rows.tolist())}

    def tuned(options: dict[str, object]) -> FederatedData:
        data = table["data"] | plain | {"options": options, "validation_fraction": 0.2}
        return open_data(Config.from_dict({**table, "data": data}))

    clean, poisoned = tuned({}), tuned(poison)
    assert clean.classes == poisoned.classes == ("0", "1", "2")
    assert rows_of(clean) == rows_of(poisoned)
    assert all(
        np.array_equal(one, other)
        for one, other in zip(clean.parts, poisoned.parts, strict=True)
    )
    assert np.array_equal(clean.test.labels, poisoned.test.labels)
    assert np.array_equal(clean.private.labels, poisoned.private.labels)
    tested = Config.from_dict(
        {**table, "data": table["data"] | plain | {"options": poison}}
    )
    if function == "own":  # the poison is there
        with pytest.raises(RecordsError, match="the label 99"):
            open_data(tested)
    else:
        assert open_data(tested).classes == ("0", "1", "2", "77")
    sys.modules.pop("my_poisoned_source", None)


def test_what_reads_each_record_alone_may_be_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = (
        r"data\.source = 'cifar10' reads a published data set as a whole"
        r".*Choose npy, npz, .*, or your function"
    )
    with pytest.raises(ConfigError, match=told):
        open_private(site("cifar10", tmp_path), "a")
    assert (
        len(open_private(site("digits", classes=tuple("0123456789")), "a")[0]) == 1797
    )
    # its author vouches for it
    assert len(open_private(site("my_checked_source:fine"), "a")[0]) == 40
    monkeypatch.setitem(
        SOURCES, "registered", import_function("my_checked_source:fine", "source")
    )
    assert can_be_private("registered")
    monkeypatch.setitem(SOURCES, "built in", partition)
    assert not can_be_private("built in")


def test_a_function_of_ones_own_is_told_the_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_site.py").write_text(
        "from fedaux.data.adapters import from_torch\n"
        "def load(declared): return from_torch([([1.0], 'cold'), (None, 'flu')], "
        "declared=declared, shape=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert open_private(site("my_site:load"), "a")[0].labels.tolist() == [1, -1]
    sys.modules.pop("my_site", None)


def images(count: int, seed: int = 0) -> Records:
    return Records(
        np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 1), dtype=np.uint8)
    )


def test_equal_records_are_counted_wherever_they_stand() -> None:
    private = images(300)
    public = Records(np.concatenate([images(100, 1).x, private.x[50:80]]))
    found = shared_records(private, public)
    assert (found.count, found.compared) == (30, 130)
    assert not found.by_chance
    assert shared_records(private, images(100, 1)).count == 0
    texts = np.array(["one", "two", " "], dtype=object)
    # blank: none
    assert (
        shared_records(
            Records(texts), Records(np.array(["two", " ", "x"], dtype=object))
        ).count
        == 1
    )


def test_large_sets_are_sampled_and_still_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlap, "COMPARED_RECORDS", 200)
    found = shared_records(images(2000), images(2000))
    assert found.compared == 200
    assert not found.by_chance
    assert shared_records(images(2000), images(2000, 1)).by_chance


def test_blank_images_and_rows_that_repeat_prove_nothing() -> None:
    blank = Records(np.full((50, 6, 6, 1), 255, np.uint8))
    assert shared_records(blank, blank).count == 0
    rng = np.random.default_rng(0)
    rows = [Records(rng.integers(0, 2, (300, 3)).astype(np.float32)) for _ in range(2)]
    assert shared_records(*rows).by_chance  # eight possible rows
    # 300 and 480 draws of 9,000 rows share 16, and 3 % of them are repeated
    assert Shared(16, 300, 0.015).by_chance
    assert not Shared(30, 300, 0.015).by_chance
    assert not Shared(16, 300, 0.0).by_chance


def test_a_few_equal_records_are_a_notice() -> None:
    private = images(1000)
    public = Records(np.concatenate([images(500, 1).x, private.x[:2]]))
    assert "2 of 502 records compared are both private and auxiliary" in refuse_overlap(
        private, public
    )
    assert refuse_overlap(private, images(500, 1)) == ""
    with pytest.raises(
        OverlapError, match="30 are both in the private data and in the auxiliary"
    ):
        refuse_overlap(
            private, Records(np.concatenate([images(500, 1).x, private.x[:30]]))
        )


def test_the_same_path_is_refused_unread() -> None:
    with pytest.raises(
        OverlapError,
        match=r"aux.path and data.path are the same, scans/, .* delete aux.source",
    ):
        refuse_same_source(DataConfig("images", "scans"), AuxConfig("images", "scans/"))
    refuse_same_source(DataConfig("images", "scans"), AuxConfig("images", "public"))
    parts = (
        DataConfig("stl10", "here", (("part", "train"),)),
        AuxConfig("stl10", "here", (("part", "unlabeled"),)),
    )
    refuse_same_source(*parts)  # two parts of one published dataset
    refuse_same_source(DataConfig(), AuxConfig())


def test_a_simulation_and_a_server_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    x = pictures(40, 6)
    for i, image in enumerate(x):
        save_png(tmp_path / "scans" / f"{i % 2}" / f"{i}.png", image)
        save_png(tmp_path / "copied" / f"{i}.png", image)
        save_png(tmp_path / "other" / f"{i}.png", 255 - image)

    def config(aux: str) -> Config:
        data = {
            "source": "images",
            "path": str(tmp_path / "scans"),
            "clients": 2,
            "alpha": 100,
        }
        return Config.from_dict(
            {"data": data, "aux": {"source": "images", "path": str(tmp_path / aux)}}
        )

    with pytest.raises(OverlapError, match="are the same"):
        open_data(config("scans"))
    with pytest.raises(OverlapError, match="40 are both"):
        open_data(config("copied"))
    with pytest.raises(OverlapError, match="20 are both"):
        open_data(config("scans/1"))
    assert len(open_data(config("other")).aux) == 40
    table = config("scans").to_dict()
    table["data"] |= {"partition": "own", "classes": ["0", "1"]}
    with pytest.raises(OverlapError, match="are the same"):
        open_public(Config.from_dict({**table, "federation": {"sites": ["a"]}}))


def test_errors_about_records_name_the_file(tmp_path: Path) -> None:
    x = np.zeros((6, 4), np.float32)
    np.savez(tmp_path / "nan.npz", x=x, y=np.array([0, 1, np.nan, 0, 1, 0]))
    np.savez(tmp_path / "short.npz", x=x, y=np.array([0, 1, 0]))
    for name in ("nan.npz", "short.npz"):
        with pytest.raises(ValueError, match=name):
            open_source("npz", tmp_path / name)


def test_public_records_of_another_type_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "own.npz",
        x=rng.integers(0, 255, (40, 4, 4, 1), np.uint8),
        y=np.arange(40) % 2,
    )
    np.savez(tmp_path / "public.npz", x=rng.random((20, 4, 4, 1), np.float32))
    table = {
        "data": {"source": "npz", "path": str(tmp_path / "own.npz"), "clients": 2},
        "aux": {"source": "npz", "path": str(tmp_path / "public.npz")},
    }
    with pytest.raises(
        ValueError, match="private records are uint8 and auxiliary ones float32"
    ):
        open_data(Config.from_dict(table))


def test_six_records_are_few(tmp_path: Path) -> None:
    np.savez(tmp_path / "six.npz", x=np.eye(6, dtype=np.float32), y=np.arange(6) % 2)
    table = {
        "data": {
            "source": "npz",
            "path": str(tmp_path / "six.npz"),
            "clients": 2,
            "partition": "iid",
        }
    }
    notes = open_data(Config.from_dict(table)).notes
    assert any(
        "very few records: client-000 has" in note and "to test on" in note
        for note in notes
    )
    assert not any("very few" in note for note in open_data(Config()).notes)


def test_a_given_split_says_where_it_is_given() -> None:
    given = Config.from_dict({"data": {"partition": "given"}})
    with pytest.raises(ConfigError) as found:
        open_data(given)
    for words in ("'digits' does not", "init table --site", "site=", "dirichlet"):
        assert words in str(found.value)

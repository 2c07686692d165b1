"""Sources by name: the bundled digits, registered ones and a user's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import Exit, FedauxError, UnknownNameError
from fedaux.data.records import Corpus
from fedaux.data.sources import SOURCES, open_source, register
from helpers.own_records import records, site


def test_digits():
    corpus = open_source("digits")
    from sklearn.datasets import load_digits

    raw = load_digits()
    assert corpus.train.x.shape == (1797, 8, 8, 1)
    assert corpus.train.x.dtype == np.uint8
    assert np.array_equal(corpus.train.x[..., 0], np.rint(raw.images * 255 / 16))
    assert corpus.train.x.max() == 255
    assert np.array_equal(corpus.train.labels, raw.target)
    assert corpus.test is None
    assert corpus.classes == tuple("0123456789")


def test_an_option_may_have_the_name_of_any_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "parts.py").write_text(
        "from fedaux.data.sources import open_source\n"
        "def digits(name, path):\n"
        "    assert (name, path) == ('scans', 'here')\n"
        "    return open_source('digits')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert len(open_source("parts:digits", name="scans", path="here").train) == 1797


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_hospital.py").write_text(
        "import numpy as np\n"
        "from fedaux.data.records import Corpus, Records\n"
        "def scans(path, rows=3):\n"
        "    return Corpus(Records(np.full((rows, 2), len(path.name)), "
        "np.arange(rows)))\ndef nothing():\n    return [1, 2]\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_hospital", None)


@pytest.mark.usefixtures("module")
def test_a_function_of_ones_own():
    corpus = open_source("my_hospital:scans", "some/where", rows=4)
    assert corpus.train.gather().tolist() == [[5, 5]] * 4
    assert corpus.train.labels.tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        (
            "my_hospital:nothing",
            {},
            ValueError,
            "returned list. Return a fedaux.data.records.Corpus",
        ),
        (
            "my_hospital:number",
            {},
            UnknownNameError,
            "the function of module 'my_hospital' 'number': it is unknown. Choose from .*scans",
        ),
        (
            "my_hospital:scan",
            {},
            UnknownNameError,
            r"'scan': it is unknown \(did you mean 'scans'\?\)",
        ),
        (
            "no_such_module:scans",
            {},
            UnknownNameError,
            "no module 'no_such_module'. Put its folder on PYTHONPATH",
        ),
        ("my_hospital:scans", {}, ValueError, "missing a required argument: 'path'"),
        (
            "my_hospital:scans",
            {"path": "a", "row": 1},
            ValueError,
            r"unexpected keyword argument 'row'. It takes \(path",
        ),
        ("digits", {"path": "a"}, ValueError, "unexpected keyword argument 'path'"),
        ("cifar1O", {}, ValueError, "did you mean 'cifar10'"),
        (
            "zzz",
            {},
            ValueError,
            "Choose from .*cifar10, cifar100, .*csv, .*module:function",
        ),
    ],
)
def test_errors_say_what_to_do(name, options, error, message):
    with pytest.raises(error, match=message):
        open_source(name, **options)


def test_register(monkeypatch):
    monkeypatch.setattr("fedaux.data.sources.SOURCES", SOURCES)
    digits = open_source("digits")

    @register("test-only")
    def mine() -> Corpus:
        return digits

    try:
        assert open_source("test-only").train is digits.train
    finally:
        del SOURCES["test-only"]


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {"digits", "schema", "table"}))
def test_a_missing_file_is_named(name, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"nowhere.* is missing. It is part of .+ check `path`"
    ):
        open_source(name, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "cause"), [("schema", "no such file"), ("table", "no schema")]
)
def test_a_table_without_its_schema_says_who_writes_one(name, cause, tmp_path):
    with pytest.raises(FedauxError, match=rf"{cause}.*`fedaux init table"):
        open_source(name, tmp_path / "nowhere")


def test_a_source_that_knows_no_persons_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"does not know the person of a record. data\.person = 'patient'",
    ) as told:
        records(site("digits", person="patient"))
    assert told.value.code == Exit.SETTINGS
    head = "import numpy as np\nfrom fedaux import Corpus, Records\n"
    body = "def load(person=''):\n    return Corpus(Records(np.zeros((3, 1)), np.zeros(3, int), person=np.arange(3)))\n"
    (tmp_path / "source_of_persons.py").write_text(head + body)
    monkeypatch.syspath_prepend(tmp_path)
    assert records(
        site("source_of_persons:load", person="patient")
    ).persons.tolist() == [0, 1, 2]
    sys.modules.pop("source_of_persons", None)


TRAPS = """
import numpy as np
from fedaux.data.records import Corpus, Records
x, y = np.zeros((2, 4)), np.array([0, 1])
def first(): return Corpus(Records(np.arange(2 * 3 * 5 * 7, dtype=np.uint8).reshape(2, 3, 5, 7), y))
def odd(): return Corpus(Records(np.zeros((2, 3, 5, 3), np.uint8), y))
def short(): return Corpus(Records(x, y.astype(np.int32)), Records(x, y.astype(np.uint8)))
def real(): return Corpus(Records(x, y.astype(float)))
"""


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_traps.py").write_text(TRAPS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_traps", None)


@pytest.mark.usefixtures("traps")
def test_images_with_channels_first_are_turned() -> None:
    corpus = open_source("my_traps:first")
    assert corpus.train.shape == (3, 5, 7)
    expected = np.arange(2 * 3 * 5 * 7, dtype=np.uint8).reshape(2, 3, 5, 7)
    assert np.array_equal(corpus.train.gather().transpose(0, 3, 1, 2), expected)
    assert "channels first" in corpus.notes[0]
    # could be either: taken as documented
    assert open_source("my_traps:odd").train.x.shape == (2, 3, 5, 3)
    assert not open_source("my_traps:odd").notes


@pytest.mark.usefixtures("traps")
def test_labels_of_any_whole_type_become_int64() -> None:
    corpus = open_source("my_traps:short")
    assert corpus.test is not None
    assert corpus.train.labels.dtype == corpus.test.labels.dtype == np.int64
    assert corpus.train.labels.tolist() == [0, 1]
    with pytest.raises(
        ValueError, match="labels must be whole numbers from 0 on, not float64"
    ):
        open_source("my_traps:real")

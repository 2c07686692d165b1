"""What cannot be trained on is refused before anything is trained."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedaux.config.schema import Config
from fedaux.data.federated import client_names, open_data

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
    settings = [f"data.source=my_checked_source:{function}", "data.clients=2", "data.alpha=100"]
    return open_data(Config.from_dict({}, settings))


def test_clients_have_their_names_in_order():
    data = opened("fine")
    assert list(data.clients) == client_names(Config.from_dict({}, ["data.clients=2"])) == ["client-000", "client-001"]
    assert sum(len(data.client(i)) for i in range(2)) + len(data.aux) == 40


@pytest.mark.parametrize(
    ("function", "part"), [("training", "training"), ("negative", "training"), ("testing", "test")]
)
def test_labels_beyond_the_classes_are_refused(function, part):
    with pytest.raises(ValueError, match=rf"the {part} part needs records with labels 0\.\.1, one for each class"):
        opened(function)


def test_held_out_rows_keep_the_order_of_the_file():
    """Rows of a mapped file are read forwards."""
    data = open_data(Config())
    assert len(data.test) > 0
    for part in (data.test, data.aux):
        assert np.all(np.diff(part.rows) > 0)

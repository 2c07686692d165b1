"""What a server has heard of accounts outlives its runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.server.account_counts import Heard
from fedaux.server.run_state import StateError
from helpers.states import ACCOUNT


def test_counts_are_kept_and_only_grow(tmp_path: Path) -> None:
    path = tmp_path / "heard.json"
    assert Heard(path).entries("berlin") == (0, "")
    Heard(path).update({"berlin": replace(ACCOUNT, entries=3), "paris": replace(ACCOUNT, entries=0)})
    Heard(path).update({"berlin": replace(ACCOUNT, entries=2), "rome": replace(ACCOUNT, entries=1, signature="r1")})
    assert [Heard(path).entries(name) for name in ("berlin", "paris", "rome")] == [(3, ""), (0, ""), (1, "r1")]
    assert json.loads(path.read_text()) == {"berlin": [3, ""], "rome": [1, "r1"]}


def test_signatures_go_with_their_counts(tmp_path: Path) -> None:
    path = tmp_path / "heard.json"
    known = Heard(path)
    assert known.entries("berlin") == (0, "")
    known.update({"berlin": replace(ACCOUNT, entries=3, signature="b3")})
    known.update({"berlin": replace(ACCOUNT, entries=2, signature="b2"), "paris": replace(ACCOUNT, entries=2)})
    known.update({"berlin": replace(ACCOUNT, entries=3, signature="")})
    assert [Heard(path).entries(name) for name in ("berlin", "paris")] == [(3, "b3"), (2, "")]
    known.update({"berlin": replace(ACCOUNT, entries=3, signature="a3")})
    assert Heard(path).entries("berlin") == (3, "a3")


@pytest.mark.parametrize("text", ["{", "[]", '{"berlin": "many"}', '{"berlin": [1]}'])
def test_a_damaged_file_ends_the_run_before_it_begins(tmp_path: Path, text: str) -> None:
    (tmp_path / "heard.json").write_text(text)
    with pytest.raises(StateError, match="is damaged"):
        Heard(tmp_path / "heard.json")

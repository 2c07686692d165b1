"""What a server has heard of accounts outlives its runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.algorithms.heard import Heard
from fedaux.algorithms.run_state import StateError
from helpers.states import ACCOUNT


def test_counts_are_kept_and_only_grow(tmp_path: Path) -> None:
    path = tmp_path / "heard.json"
    assert Heard(path).entries("berlin") == 0
    Heard(path).update({"berlin": replace(ACCOUNT, entries=3), "paris": replace(ACCOUNT, entries=0)})
    Heard(path).update({"berlin": replace(ACCOUNT, entries=2), "rome": replace(ACCOUNT, entries=1)})
    assert [Heard(path).entries(name) for name in ("berlin", "paris", "rome")] == [3, 0, 1]
    assert json.loads(path.read_text()) == {"berlin": 3, "rome": 1}


@pytest.mark.parametrize("text", ["{", "[]", '{"berlin": "many"}'])
def test_a_damaged_file_ends_the_run_before_it_begins(tmp_path: Path, text: str) -> None:
    (tmp_path / "heard.json").write_text(text)
    with pytest.raises(StateError, match="is damaged"):
        Heard(tmp_path / "heard.json")

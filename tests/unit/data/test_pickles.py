"""Pickles as anybody may have written them: arrays are read, and no code is run."""

from __future__ import annotations

import datetime
import io
import os
import pickle
from collections import OrderedDict, deque
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.data.pickles import Unknown, load_pickle, unpickle_objects


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


class Loose:
    """With a state, as most objects have it."""

    def __init__(self) -> None:
        self.label = 1


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_malicious_pickle_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_bytes(pickle.dumps({b"data": Payload()}, protocol=protocol))
    with pytest.raises(pickle.UnpicklingError, match=r"refused (posix|nt)\.system"):
        load_pickle(tmp_path / "bad")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_harmless_pickles_of_any_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "good").write_bytes(pickle.dumps({"data": np.arange(6).reshape(2, 3), b"n": [1, b"\xe9"]}, protocol))
    content = load_pickle(tmp_path / "good")
    assert content["data"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert content["n"] == [1, b"\xe9"]


@pytest.mark.parametrize("protocol", [0, 2, 3, 5])
def test_strange_objects_are_not_made_and_leave_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    strange = [Payload(), Loose(), Decimal(1), datetime.date(2020, 1, 1), {1}, deque([1]), OrderedDict(a=1), Path("a")]
    values = [1, *strange, "flu", None, np.int64(2), np.float32(0.5)]
    array = np.empty(len(values), object)
    array[:] = values
    found = unpickle_objects(io.BytesIO(pickle.dumps(array, protocol)))
    assert [found[0], *found[-4:]] == [1, "flu", None, 2, 0.5]
    assert {str(value) for value in found[1:-4] if isinstance(value, Unknown)} == {""}
    assert sum(isinstance(value, Unknown) for value in found) >= len(strange) - 1  # a set is built in, or called
    assert not (tmp_path / "owned").exists()

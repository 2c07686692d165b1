"""The result of training is stored under the identity of its order, and comes back to the bit."""

import logging
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.client.local_training import Trained
from fedaux.client.stored_results import KEPT, LocalResult, ResultStore, training_identity
from fedaux.core.messages import TrainOrder
from fedaux.privacy.accounting import Mechanism
from helpers.samples import train_order, weights

RESULT = LocalResult(weights(1.5), 7, Trained(0.1 + 0.2, 12), 1.5, Mechanism(2.0, 0.25, 12))
ARRAYS = {"parameters": np.ones(3, np.float32)}
IRRELEVANT = {
    "heard": 9,
    "heard_signature": "s",
    "extractor": ARRAYS,
    "teaching": "{}",
    "public": ARRAYS,
    "fit": ARRAYS,
    "client_fit": ARRAYS,
}


def test_a_result_comes_back_to_the_bit(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "vault", "a", "plain")
    store.keep("f00d", RESULT)
    found = LocalResult.load(store.path("f00d"))
    assert {name: (array.dtype, array.tobytes()) for name, array in found.weights.items()} == {
        name: (array.dtype, array.tobytes()) for name, array in RESULT.weights.items()
    }
    assert (found.records, found.trained, found.seconds, found.mechanism) == (
        RESULT.records,
        RESULT.trained,
        RESULT.seconds,
        RESULT.mechanism,
    )
    assert store.path("f00d").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "vault").stat().st_mode & 0o777 == 0o700


def other(value: Any) -> Any:
    if isinstance(value, dict):
        return {"c": np.ones(2, np.float32)}
    return value + ("x" if isinstance(value, str) else 1)


@pytest.mark.parametrize("name", [field.name for field in fields(TrainOrder)])
def test_all_that_decides_on_the_model_is_in_its_identity_and_nothing_else(name: str) -> None:
    order = train_order()
    changed = replace(order, **{name: IRRELEVANT.get(name, other(getattr(order, name)))})
    assert (training_identity(changed, True) == training_identity(order, True)) == (name in IRRELEVANT)


def test_a_model_without_privacy_never_answers_where_privacy_is_asked_for() -> None:
    assert training_identity(train_order(), private=True) != training_identity(train_order(), private=False)


def test_arrays_do_not_change_places() -> None:
    one, two = train_order(broadcast=ARRAYS), train_order(standardisation=ARRAYS)
    assert training_identity(one, True) != training_identity(two, True)


def test_only_the_last_results_of_a_client_are_kept(tmp_path: Path) -> None:
    ours, theirs = ResultStore(tmp_path, "a", "plain"), ResultStore(tmp_path, "b", "plain")
    theirs.keep("1", RESULT)
    for age, identity in enumerate(["1", "2", "3"]):
        ours.keep(identity, RESULT)
        os.utime(ours.path(identity), (age, age))
    ours.drop_old()
    assert KEPT == 2
    assert [ours.path(identity).exists() for identity in ("1", "2", "3")] == [False, True, True]
    assert theirs.path("1").exists()


def test_a_full_disk_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "vault").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        ResultStore(tmp_path / "vault", "a", "plain").keep("f00d", RESULT)
    assert "trains again if its reply is lost" in caplog.text

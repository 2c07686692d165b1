"""A client's own warning that public features are of another kind than its own."""

import logging
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from fedaux.client import far_features
from fedaux.client.answers import AnswerStore
from fedaux.client.far_features import mean_direction, warn_of_far_features
from fedaux.client.releases import Releases
from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays, Vector
from fedaux.data.records import Records
from fedaux.messages import PrepareOrder
from fedaux.privacy.accounting import BudgetError
from fedaux.scoring.embedding import ClassEmbeddingScorer
from helpers.samples import prepare_order

WIDTH = 24
CLASSES = 4
ROWS = 400


def mixture(shift: float = 0.0, seed: int = 0) -> tuple[Vector, Vector]:
    """Rows of classes that lie apart, all moved in one direction."""
    rng = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(9).normal(size=(CLASSES, WIDTH))
    labels = rng.integers(0, CLASSES, ROWS)
    rows = centres[labels] + rng.normal(size=(ROWS, WIDTH))
    moved = np.random.default_rng(8).normal(size=WIDTH)
    return rows + shift * moved, labels


@pytest.fixture(scope="module")
def public() -> Arrays:
    return ClassEmbeddingScorer(CLASSES).publish(mixture()[0])


def order_with(public: Arrays) -> PrepareOrder:
    size = CLASSES * (public["basis"].shape[1] + 1)
    return prepare_order(public=public, classes=CLASSES, size=size)


def is_far(public: Arrays, rows: Vector, labels: Vector) -> bool:
    found = mean_direction(public, rows, labels)
    assert found is not None
    return found.is_far


def test_records_of_the_public_kind_are_near(public: Arrays) -> None:
    assert not is_far(public, *mixture(seed=1))


def test_records_of_another_kind_are_far(public: Arrays) -> None:
    assert is_far(public, *mixture(shift=5.0, seed=1))


@pytest.mark.parametrize("label", range(CLASSES))
def test_one_class_of_the_public_kind_is_not_far(public: Arrays, label: int) -> None:
    """Its mean direction is long, and so is the limit."""
    rows, labels = mixture(seed=1)
    own = labels == label
    found = mean_direction(public, rows[own], labels[own])
    assert found is not None
    assert far_features.FAR_FROM_PUBLIC < found.found < found.limit


def test_blocks_do_not_change_the_length(
    public: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels = mixture(seed=1)
    whole = mean_direction(public, rows, labels)
    monkeypatch.setattr(far_features, "ROWS_AT_ONCE", 7)
    in_blocks = mean_direction(public, rows, labels)
    assert whole is not None
    assert in_blocks is not None
    assert in_blocks.found == pytest.approx(whole.found)


def test_chance_is_not_counted(public: Arrays) -> None:
    """The mean direction of few records is long: what chance adds is taken off."""
    found = []
    for seed in range(50):
        rows, labels = mixture(seed=seed)
        near = mean_direction(public, rows[:20], labels[:20])
        assert near is not None
        found.append(near.found)
    assert abs(np.mean(found)) < 0.03


def test_too_few_records_say_nothing(public: Arrays) -> None:
    rows, labels = mixture(shift=5.0)
    assert mean_direction(public, rows[:19], labels[:19]) is None


def test_a_scorer_without_a_map_says_nothing() -> None:
    assert mean_direction({"centre": np.zeros(3)}, *mixture()) is None


def own_data(shift: float) -> Any:
    rows, labels = mixture(shift, seed=1)
    return lambda: (Records(rows, labels), rows)


def test_the_warning_is_in_the_log_of_the_client(
    public: Arrays, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_far_features(order_with(public), own_data(0.0))
    assert caplog.text == ""
    warn_of_far_features(order_with(public), own_data(5.0))
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "the public data are of another kind" in line.getMessage()


def test_rows_of_a_schema_are_not_called_public_data(
    public: Arrays, caplog: pytest.LogCaptureFixture
) -> None:
    """It said "Use public data of the same kind" where there are none."""
    warn_of_far_features(order_with(public), own_data(5.0), drawn=True)
    (line,) = caplog.records
    assert "the rows that are drawn from the schema are unlike" in line.getMessage()
    assert "Check the ranges and quantiles in the schema" in line.getMessage()
    assert "Use public data" not in line.getMessage()


def test_simulated_clients_warn_once(
    public: Arrays, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vault = tmp_path / "clients"
    for shift in (0.0, 5.0, 5.0):
        warn_of_far_features(order_with(public), own_data(shift), vault)
    assert len(caplog.records) == 1


def unreadable() -> NoReturn:
    raise OSError("no such file")


def test_nothing_that_goes_wrong_is_raised(
    public: Arrays, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    warn_of_far_features(order_with(public), unreadable)
    warn_of_far_features(order_with(public), own_data(5.0), blocked / "clients")
    warn_of_far_features(
        order_with({**public, "mean": np.zeros(3, np.float32)}), own_data(5.0)
    )
    assert caplog.text == ""


def test_the_owner_is_warned_before_the_entry_and_not_again(
    public: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privacy = PrivacyConfig(epsilon=1.0)
    store = AnswerStore(tmp_path, "a", privacy)
    releases = Releases(store, own_data(5.0))
    entries = []
    monkeypatch.setattr(
        far_features.log, "warning", lambda *text: entries.append(store.account())
    )
    order = order_with(public)
    releases.release(order)
    releases.release(order)
    (account,) = entries
    assert account.entries == 0
    assert store.account().entries == 1


def test_records_are_not_read_for_an_entry_that_the_owner_does_not_allow(
    public: Arrays, tmp_path: Path
) -> None:
    store = AnswerStore(tmp_path, "a", PrivacyConfig(epsilon=1.0, epsilon_total=1.0))
    order = order_with(public)
    Releases(store, own_data(0.0)).release(order)
    other = order_with({**public, "mean": public["mean"] + 1})
    with pytest.raises(BudgetError):
        Releases(store, unreadable).release(other)

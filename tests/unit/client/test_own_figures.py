"""The exact figures that a site keeps for its owner."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from fedaux.client.own_figures import (
    FOLDER_OF_TESTS,
    OwnFigures,
    in_words,
    keep_own_figures,
    linear_accuracy,
)
from fedaux.data.records import Records
from helpers.asked_site import NETWORK, asked_site
from helpers.samples import look_order

LOOK = look_order(prototype=NETWORK.to_json(), classes=2)


def test_the_model_alone_is_trained_on_labelled_records_only() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (200, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    tested = rng.normal(0, 1, (100, 3)).astype(np.float32)
    labels = (tested[:, 0] > 0).astype(np.int64)
    found = linear_accuracy(x, y, tested, labels)
    assert found is not None
    assert found > 0.9
    x[:5] = np.nan
    y[5:20] = -1
    labels[:50] = -1
    assert linear_accuracy(x, y, tested, labels) == pytest.approx(found, abs=0.1)


def test_of_one_class_nothing_can_be_learned() -> None:
    x = np.zeros((4, 1), np.float32)
    ones = np.ones(4, np.int64)
    assert linear_accuracy(x, ones, x, np.array([1, 1, 0, -1])) == pytest.approx(2 / 3)
    assert linear_accuracy(x, -ones, x, ones) is None
    assert linear_accuracy(x, ones, x, -ones) is None


def test_a_look_is_answered_whatever_becomes_of_its_figures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = asked_site(tmp_path)  # whose records are nowhere
    held_out = Records(np.zeros((2, 1), np.float32), np.array([0, 1]))
    with caplog.at_level(logging.ERROR):
        keep_own_figures(LOOK, site, held_out, np.zeros((2, 2), np.float32))
    assert "Cannot keep this site's results of the test" in caplog.text
    assert not (site.vault / FOLDER_OF_TESTS).exists()
    assert OwnFigures.read_all(site.vault) == []


def test_figures_in_words() -> None:
    alone = OwnFigures("2026-01-01T00:00:00+00:00", "run", 46, 0.85, 0.8, 0.6)
    assert "the federation's model 85.0 %, trained alone 80.0 %" in in_words(alone)
    whole = OwnFigures("2026-01-01T00:00:00+00:00", "run", 46, 0.85, None, 0.6)
    assert "alone" not in in_words(whole)

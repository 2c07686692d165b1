"""How the end of a server's app is logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.flower.run_end import FLOWER_LOG, ending_in_a_sentence


@pytest.fixture
def _filters() -> Iterator[None]:
    before = list(FLOWER_LOG.filters)
    yield
    FLOWER_LOG.filters[:] = before


@pytest.mark.usefixtures("_filters")
@pytest.mark.parametrize(
    ("error", "is_sentence"),
    [
        (ConfigError("Cannot begin: no."), True),
        (ValueError("public.csv, record 0: nothing in label."), True),
        (FileNotFoundError(2, "No such file or directory", "public.csv"), True),
        (KeyError("label"), False),
    ],
)
def test_errors_of_settings_and_data_are_sentences(
    error: Exception, is_sentence: bool
) -> None:
    with pytest.raises(type(error)), ending_in_a_sentence():
        raise error
    record = logging.LogRecord(
        "flwr", logging.ERROR, "", 0, "failed", (), (type(error), error, None)
    )
    assert all(kept.filter(record) for kept in FLOWER_LOG.filters)
    assert (record.exc_info is None) == is_sentence
    assert record.getMessage() == (str(error) if is_sentence else "failed")

"""Fixtures that several rooms use."""

from dataclasses import replace

import pytest

from fedaux.server.result import FinishedRun
from helpers.runs import finished_run
from helpers.tiny import CNN, MLP, TINY_CONFIG


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A finished run of two networks."""
    return finished_run(
        tmp_path_factory.mktemp("finished"), replace(TINY_CONFIG, prototypes=(MLP, CNN))
    )

"""Fixtures of the room of Flower."""

import logging

import pytest


@pytest.fixture
def known_entries(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's logger keeps its records to itself; here they are wanted."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.WARNING)

"""Fixtures of the privacy room."""

from collections.abc import Iterator

import pytest
import torch

from fedaux.privacy import per_record


@pytest.fixture
def workers_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers wherever they are allowed, whether they pay or not."""
    monkeypatch.setattr(per_record, "MIN_PARALLEL_SECONDS", 0.0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)

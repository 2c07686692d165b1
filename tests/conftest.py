"""Settings of all tests, and a place to call commands from."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# an assertion that fails in a helper says what it compared
pytest.register_assert_rewrite("helpers")

# A build must not depend on luck: in CI, property tests try the same examples every
# time; elsewhere, new ones. Nor on what else the machine does: to draw an example and
# to try it may take any time.
settings.register_profile(
    "elsewhere", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("elsewhere"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "elsewhere")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a config of a tiny run and a cache of its own."""
    from helpers.tiny import TINY_TOML

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "tiny.toml").write_text(TINY_TOML)
    return tmp_path


@pytest.fixture
def config(place: Path) -> Path:
    return place / "tiny.toml"


@pytest.fixture
def workers_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Private records are shared out among workers wherever that is allowed, whether it
    pays or not.
    """
    import torch

    from fedaux.privacy import per_record

    monkeypatch.setattr(per_record, "MIN_PARALLEL_SECONDS", 0.0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)

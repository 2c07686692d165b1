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

# Tests that wait for servers and processes for a minute or more, and then folders from
# the slowest to the quickest test.
LONGEST_FIRST = (
    "tests/end_to_end/servers/",
    "tests/end_to_end/test_newer_flower.py",
    "tests/end_to_end/test_demo.py",
    "tests/end_to_end/",
    "tests/attacks/",
    "tests/docs/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several workers, one begins with what takes longest, so that the others have
    enough to do until it ends. A single process keeps the order of folders.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    for turn, place in enumerate(LONGEST_FIRST):
        if item.nodeid.startswith(place):
            return turn
    return len(LONGEST_FIRST)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """The files of a test need not survive a power cut; tests of what does replace
    `os.fsync` themselves.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        yield


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

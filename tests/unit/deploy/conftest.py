"""A new deployment, in a folder with an awkward name; and Flower as it is installed,
after each test.
"""

import importlib
from pathlib import Path

import pytest

from helpers.deployments import AWKWARD, deploy

PATCHED = (
    ("threading", "excepthook"),
    ("uvicorn", "Config"),
    ("uvicorn", "run"),
    ("flwr.supernode.start_client_internal", "subprocess"),
    ("flwr.supernode.start_client_internal", "_pull_and_store_message"),
    ("flwr.supernode.start_client_internal", "_verify_fab"),
    ("flwr.supernode.start_client_internal", "_init_connection"),
    ("flwr.supercore.superexec.run_superexec", "RuntimeHttpClient"),
    (
        "flwr.supercore.superexec.executor.subprocess_executor:SubprocessExecutor",
        "launch",
    ),
    ("flwr.supercore.superexec.executor.subprocess_executor", "subprocess"),
    ("flwr.supernode.runtime.run_clientapp", "RuntimeHttpClient"),
    ("flwr.superlink.extensions", "get_middleware"),
    ("flwr.superlink.servicer.fleet.fleet_handlers", "push_messages"),
    ("flwr.superlink.servicer.fleet.fleet_handlers", "push_object"),
    ("flwr.superlink.servicer.runtime.runtime_handlers", "pull_messages"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return deploy(tmp_path / AWKWARD)


@pytest.fixture
def site(folder: Path) -> Path:
    return folder / "sites" / "berlin"


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the test changes in Flower is put back."""
    for place, name in PATCHED:
        module, _, part = place.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, part) if part else owner
        monkeypatch.setattr(owner, name, getattr(owner, name))

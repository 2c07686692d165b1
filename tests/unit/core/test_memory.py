"""Which processes keep the memory that they free. What that does is tested in
`tests/end_to_end/test_reuse_memory.py`, in processes of their own.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from fedaux.cli.common import prepare_to_train
from fedaux.deploy import supernode
from fedaux.flower import client_app, server_app
from fedaux.sweeps import workers


class Called(Exception):
    """Raised where a process would keep its memory, before it does anything else."""


def raise_called() -> bool:
    raise Called


def test_every_process_that_trains_keeps_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands, workers of sweeps, servers, and clients at sites and on Ray."""
    monkeypatch.setattr("fedaux.core.memory.reuse_memory", raise_called)
    for module in (workers, supernode, server_app, client_app):
        monkeypatch.setattr(module, "reuse_memory", raise_called)
    monkeypatch.setattr(client_app, "is_simulation", lambda: True)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    anything = cast(Any, None)
    processes: list[Callable[[], object]] = [
        lambda: prepare_to_train(1),
        lambda: workers._serve(anything, 1),
        lambda: supernode.clientapp("/nowhere", 1),
        lambda: server_app.server_app(anything, anything)(anything, anything),
        lambda: server_app.regional_app(anything)(anything, anything),
        lambda: client_app.answer(anything, anything, anything),
    ]
    for process in processes:
        with pytest.raises(Called):
            process()


def test_a_program_of_a_users_own_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients that `fedaux.run` simulates in it are no process of ours."""
    monkeypatch.setattr(client_app, "reuse_memory", raise_called)
    with pytest.raises(AttributeError, match="content"):
        client_app.answer(cast(Any, None), cast(Any, None), cast(Any, None))

"""A node's local API at a socket: only its own user gets there, and Flower's client speaks through it."""

import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import uvicorn
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResultStatus
from flwr.supernode import start_client_internal as internal
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeState, NodeStateFactory
from httpx import HTTPStatusError

from fedaux.deploy import runtime_socket
from fedaux.deploy.runtime_socket import SocketClient, launch, private_socket, serve_at


def test_a_socket_lies_in_a_folder_of_its_user_and_goes_with_it() -> None:
    with private_socket() as path, private_socket() as other:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path != other
        path.touch()
    assert not path.parent.exists()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, NodeState]]:
    """The API as a SuperNode starts it, at the host and port that it was given, and the state that it serves."""
    monkeypatch.setattr(uvicorn, "Config", uvicorn.Config)
    monkeypatch.setattr(internal, "subprocess", internal.subprocess)
    factory = NodeStateFactory(ObjectStoreFactory())
    with private_socket() as path:
        serve_at(path)
        config = uvicorn.Config(app=create_app(factory), host="127.0.0.1", port=9, log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield path, factory.state()
        server.should_exit = True
        thread.join()


def client(path: Path, token: str = "") -> SocketClient:
    known = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
    return SocketClient.from_server_address(
        str(path), True, None, [*known, RuntimeTokenHttpInterceptor(token)] if token else known
    )


def test_orders_are_taken_at_the_socket(served: tuple[Path, NodeState], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxies the environment names."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    path, state = served
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    assert not client(path).AcquireTask(request).token
    task = state.create_task(task_type=TaskType.CLIENT_APP, run_id=1, fab_hash="h")
    found = client(path).AcquireTask(request)
    assert found.task.task_id == task
    with pytest.raises(HTTPStatusError, match="404"):  # the token is known, the run is not
        client(path, found.token).PullTaskInput(PullTaskInputRequest())
    with pytest.raises(HTTPStatusError, match="401"):
        client(path, "ab" * 128).PullTaskInput(PullTaskInputRequest())


def order(kind: TaskType, token: str = "token") -> ExecutionSpec:
    return ExecutionSpec(kind, "/nowhere", token, True, None, False, 1, False, 1)


@pytest.mark.parametrize("kind", [kind for kind in TaskType if kind != TaskType.CLIENT_APP])
def test_a_site_starts_nothing_but_a_client(kind: TaskType) -> None:
    assert launch(SubprocessExecutor(), order(kind)).status == LaunchResultStatus.FAILED


def test_a_token_goes_through_a_pipe_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in the list of processes, for every user of the machine to read."""
    started = Mock()
    monkeypatch.setattr(runtime_socket.subprocess, "Popen", started)
    assert launch(SubprocessExecutor(), order(TaskType.CLIENT_APP, "s3cret")).status == LaunchResultStatus.ACCEPTED
    ((words,), options) = started.call_args
    assert words[-3:-1] == ["clientapp", "/nowhere"]
    assert "s3cret" not in repr((words, options))
    started.return_value.stdin.write.assert_called_once_with(b"s3cret")
    started.return_value.stdin.close.assert_called_once_with()

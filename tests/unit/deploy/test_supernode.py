"""A node runs an app of names alone and refuses any that carries code; only its own
user reaches its local API.
"""

import importlib
import io
import logging
import os
import socket
import stat
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResultStatus
from flwr.supernode import start_client_internal as internal
from flwr.supernode.nodestate import NodeState, NodeStateFactory
from httpx import HTTPStatusError

from fedaux.deploy import supernode
from fedaux.deploy.flower_patches import NodeFailure, PatchError, serve_at_socket
from fedaux.deploy.supernode import (
    SocketClient,
    clock_problem,
    launch,
    private_socket,
    rejection_reason,
)
from helpers.deployments import answering, deploy, unused_address

# a function there has the same name
COMMAND = importlib.import_module("flwr.supernode.cli.flower_supernode")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build_fab_from_disk(
        deploy(tmp_path_factory.mktemp("guards") / "d") / "server" / "app"
    )


def packed(files: dict[str, str], twice: str = "") -> bytes:
    buffer = io.BytesIO()
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        warnings.simplefilter("ignore")  # about the name that comes twice
        for name in [*files, *([twice] if twice else [])]:
            archive.writestr(name, files[name])
    return buffer.getvalue()


def project(
    name: str = "app", version: str = "1.0", publisher: str = "me", **parts: str
) -> str:
    head = f'[project]\nname = "{name}"\nversion = "{version}"\n[tool.flwr.app]\npublisher = "{publisher}"\n'
    return f"{head}[tool.flwr.app.components]\n" + "".join(
        f'{key} = "{part}"\n' for key, part in parts.items()
    )


OWN = {"serverapp": "anything:app", "clientapp": "fedaux.flower.client_app:app"}


def test_an_app_of_names_alone_is_run(good: bytes) -> None:
    assert rejection_reason(good) == ""
    assert rejection_reason(packed({"pyproject.toml": project(**OWN)})) == ""


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        (
            packed({"pyproject.toml": project(**OWN), "torch.py": "boom"}),
            "files that are not allowed: torch.py",
        ),
        (
            packed({"pyproject.toml": project(**OWN), "fedaux/__init__.py": ""}),
            "files that are not allowed",
        ),
        (
            packed({"pyproject.toml": project(**OWN)}, twice="pyproject.toml"),
            "files that are not allowed",
        ),
        (
            packed({"pyproject.toml": project(**{**OWN, "clientapp": "os:system"})}),
            "wants to run os:system",
        ),
        (packed({"pyproject.toml": project(**OWN, agentapp="x:y")}), "agentapp"),
        (packed({"pyproject.toml": project(serverapp="a:b")}), "wants to run None"),
        (packed({"pyproject.toml": "[project]"}), "no Flower app"),
        (packed({"pyproject.toml": "["}), "no Flower app"),
        (packed({}), "no Flower app"),
        (packed({"other": ""}), "files that are not allowed"),
        (packed({"pyproject.toml": "a = " + "[" * 5000}), "no Flower app"),
        (
            packed({"pyproject.toml": project(**OWN, version="../../x")}),
            "name, version or publisher",
        ),
        (
            packed({"pyproject.toml": project(**OWN, name="a/b")}),
            "name, version or publisher",
        ),
        (
            packed({"pyproject.toml": project(**OWN, publisher="..")}),
            "name, version or publisher",
        ),
        (
            packed({"pyproject.toml": project(**OWN), ".info/CONTENT": " " * 10**7}),
            "more than 65,536 bytes",
        ),
        (packed({"pyproject.toml": "#" + " " * 10**7}), "more than 65,536 bytes"),
        (bytes(2**16 + 1), "it has 65,537 bytes"),
        (b"not a zip", "no Flower app"),
    ],
)
def test_any_other_app_is_refused(bundle: bytes, reason: str) -> None:
    assert reason in rejection_reason(bundle)


def test_an_archive_that_lies_about_its_sizes_is_read_no_further_than_the_limit() -> (
    None
):
    """A bundle of 204 kB cost 416 MB and 25 s."""
    bundle = packed({"pyproject.toml": "#" * 4 * 10**7})
    true, false = (4 * 10**7).to_bytes(4, "little"), (100).to_bytes(4, "little")
    assert bundle.count(true) == 2
    tracemalloc.start()
    assert "no Flower app" in rejection_reason(bundle.replace(true, false))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**7


@pytest.fixture
def end(
    flower: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Mock:
    """Flower's node, in the place of which `supernode.main` calls this."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    monkeypatch.setattr(COMMAND, "flower_supernode", Mock())
    return COMMAND.flower_supernode  # type: ignore[no-any-return]


def pull(monkeypatch: pytest.MonkeyPatch, bundle: bytes) -> tuple[Mock, list[Any]]:
    """(state of the node, what it answers at once) when a message of a run with this
    app comes in.
    """
    replies: list[Any] = []
    monkeypatch.setattr(internal, "Message", lambda error, reply_to: error)
    monkeypatch.setattr(
        internal, "_insert_message", lambda reply, state, store: replies.append(reply)
    )
    state = Mock()
    state.get_run.return_value = None
    message = SimpleNamespace(
        metadata=SimpleNamespace(
            group_id="", run_id=7, message_type="train", message_id="m"
        )
    )
    run = SimpleNamespace(
        fab_hash="h", series_id=1, override_config={}, primary_task_type=""
    )
    store = Mock()
    store.preregister.return_value = []
    pulled = internal._pull_and_store_message(
        state=state,
        object_store=store,
        node_config={},
        receive=lambda: (message, Mock()),
        get_run=lambda run_id: run,
        get_fab=lambda name, run_id: Fab(name, bundle, {}),
        pull_object=Mock(),
        confirm_message_received=Mock(),
        trusted_entities=None,
    )
    assert pulled == 7
    return state, replies


def test_a_node_stores_and_runs_a_good_app_and_does_not_touch_another(
    end: Mock, monkeypatch: pytest.MonkeyPatch, good: bytes
) -> None:
    end.side_effect = SystemExit
    with pytest.raises(SystemExit):
        supernode.main()
    end.assert_called_once_with()
    state, replies = pull(monkeypatch, good)
    assert replies == []
    assert state.store_fab.call_args.args[0].content == good
    state.create_task.assert_called_once()
    state, replies = pull(
        monkeypatch, packed({"pyproject.toml": project(**OWN), "evil.py": ""})
    )
    assert replies == [internal.FAB_VERIFICATION_ERROR]
    state.store_fab.assert_not_called()
    state.create_task.assert_not_called()


def words(site: Path, address: str) -> list[str]:
    return ["--superlink", address, "--root-certificates", str(site / "ca.crt")]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, ""), (20, "clock is +2"), (-400, "clock is -")]
)
def test_a_clock_that_is_wrong_is_named_when_the_node_ends(
    folder: Path, site: Path, seconds: int, said: str
) -> None:
    """Twenty seconds ahead, it was refused and started again for ever, and nobody said
    why.
    """
    with answering(
        folder / "server", formatdate(time.time() - seconds, usegmt=True)
    ) as address:
        problem = clock_problem(words(site, address))
    assert said in problem
    assert ("timedatectl" in problem) == bool(said)


def test_a_clock_that_cannot_be_compared_is_no_problem(site: Path) -> None:
    assert clock_problem(words(site, unused_address())) == ""
    assert clock_problem(["--insecure"]) == ""


def test_the_node_says_so_however_it_ends(
    end: Mock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    end.side_effect = SystemExit(1)
    monkeypatch.setattr(
        supernode, "clock_problem", lambda words: "this machine's clock is +20 s"
    )
    with caplog.at_level(logging.WARNING), pytest.raises(SystemExit):
        supernode.main()
    assert "The node has ended: this machine's clock is +20 s." in caplog.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("FAB hash mismatch"), "FAB hash mismatch"),
        (NodeFailure("a 500"), "a 500"),
        (None, "stopped working"),  # Flower's loop has returned
    ],
)
def test_a_node_that_fails_does_not_stay_as_a_process_that_does_nothing(
    end: Mock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
    said: str,
) -> None:
    """The threads of its API would have kept it, and no script would have started
    another.
    """
    end.side_effect = error
    monkeypatch.setattr(os, "_exit", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        supernode.main()
    os._exit.assert_called_once_with(1)  # type: ignore[attr-defined]
    assert said in caplog.text


def test_a_socket_lies_in_a_folder_of_its_user_and_goes_with_it() -> None:
    with private_socket() as path, private_socket() as other:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path != other
        path.touch()
    assert not path.parent.exists()


@pytest.fixture
def served(flower: None) -> Iterator[tuple[Path, NodeState]]:
    """The API as a SuperNode starts it, at the host and port that it was given, and the
    state that it serves.
    """
    factory = NodeStateFactory(ObjectStoreFactory())
    tls = {
        "runtime_ssl_certfile": None,
        "runtime_ssl_keyfile": None,
        "superexec_auth_secret": None,
    }
    with private_socket() as path:
        serve_at_socket(path)
        config = SimpleNamespace(host="127.0.0.1", port=9, **tls)
        server, thread = COMMAND._start_supernode_http_api(config, factory)
        yield path, factory.state()
        server.should_exit = True
        thread.join()


def client(path: Path, token: str = "") -> SocketClient:
    known = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
    return SocketClient.from_server_address(
        str(path),
        True,
        None,
        [*known, RuntimeTokenHttpInterceptor(token)] if token else known,
    )


def test_orders_are_taken_at_the_socket(
    served: tuple[Path, NodeState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever proxies the environment names."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    path, state = served
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    assert not client(path).AcquireTask(request).token
    task = state.create_task(task_type=TaskType.CLIENT_APP, run_id=1, fab_hash="h")
    found = client(path).AcquireTask(request)
    assert found.task.task_id == task
    # the token is known, the run is not
    with pytest.raises(HTTPStatusError, match="404"):
        client(path, found.token).PullTaskInput(PullTaskInputRequest())
    with pytest.raises(HTTPStatusError, match="401"):
        client(path, "ab" * 128).PullTaskInput(PullTaskInputRequest())


def order(kind: TaskType, token: str = "token") -> ExecutionSpec:
    return ExecutionSpec(kind, "/nowhere", token, True, None, False, 1, False, 1)


@pytest.mark.parametrize(
    "kind", [kind for kind in TaskType if kind != TaskType.CLIENT_APP]
)
def test_a_site_starts_nothing_but_a_client(kind: TaskType) -> None:
    assert launch(None, order(kind)).status == LaunchResultStatus.FAILED


def test_a_token_goes_through_a_pipe_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in the list of processes, for every user of the machine to read."""
    started = Mock()
    monkeypatch.setattr(supernode.subprocess, "Popen", started)
    assert (
        launch(None, order(TaskType.CLIENT_APP, "s3cret")).status
        == LaunchResultStatus.ACCEPTED
    )
    ((words,), options) = started.call_args
    assert words[-3:-1] == ["clientapp", "/nowhere"]
    assert "s3cret" not in repr((words, options))
    started.return_value.stdin.write.assert_called_once_with(b"s3cret")
    started.return_value.stdin.close.assert_called_once_with()


def test_a_node_whose_api_is_elsewhere_asks_for_no_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supernode, "start", Mock())
    with pytest.raises(PatchError, match="not at"):
        supernode.start_superexec(tmp_path / "runtime.sock")
    with private_socket() as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        supernode.start_superexec(path)
        path.parent.chmod(0o755)
        with pytest.raises(PatchError, match="not at"):
            supernode.start_superexec(path)
    supernode.start.assert_called_once()  # type: ignore[attr-defined]

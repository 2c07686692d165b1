"""Each change to Flower takes effect where Flower uses it, and ends the process if
Flower is built otherwise.

That a node asks about every app is in `test_supernode.py`.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import uvicorn
from flwr.common import args as arguments
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import ExecutorType, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import get_executor
from flwr.supercore.superexec.executor.types import ExecutionSpec
from flwr.supercore.superexec.plugin import AutoExecPlugin
from flwr.superlink import main as superlink
from flwr.supernode import start_client_internal as node
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.runtime import run_clientapp
from starlette.middleware import Middleware

from fedaux.core import versions
from fedaux.deploy import flower_patches as patches
from fedaux.deploy.flower_patches import NodeFailure, PatchError

pytestmark = pytest.mark.usefixtures("flower")
# a function there has the same name
NODE_COMMAND = importlib.import_module("flwr.supernode.cli.flower_supernode")
METADATA = {
    "run_id": 1,
    "message_id": "m",
    "reply_to_message_id": "o",
    "group_id": "",
    "message_type": "train",
}
FLEET = importlib.import_module("flwr.superlink.routers.fleet.router")
SERVERAPP_COMMAND = importlib.import_module("flwr.superlink.cli.flwr_serverapp")
EXECUTOR: dict[str, Any] = {
    "executor_type": ExecutorType.SUBPROCESS,
    "executor_config": None,
    "insecure": True,
    "root_certificates_path": None,
}
LINK_COMMAND = importlib.import_module("flwr.superlink.cli.flower_superlink")


class UsedError(Exception):
    """What was put into Flower has been called."""


def stop(*args: Any, **kwargs: Any) -> Any:
    raise UsedError


class Client:
    from_server_address = staticmethod(stop)


def test_a_nodes_api_listens_at_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server(config: uvicorn.Config) -> None:
        raise UsedError(config.uds)

    patches.serve_at_socket(tmp_path / "sock")
    monkeypatch.setattr(uvicorn, "Server", server)
    tls = {
        "runtime_ssl_certfile": None,
        "runtime_ssl_keyfile": None,
        "superexec_auth_secret": None,
    }
    config = SimpleNamespace(host="127.0.0.1", port=9, **tls)
    with pytest.raises(UsedError, match=str(tmp_path / "sock")):
        NODE_COMMAND._start_supernode_http_api(
            config, NodeStateFactory(ObjectStoreFactory())
        )


def test_a_node_starts_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.start_superexec_with(stop)
    monkeypatch.setattr(node, "register_signal_handlers", lambda **options: None)
    with pytest.raises(UsedError):
        node.start_client_internal(
            state_factory=NodeStateFactory(ObjectStoreFactory()),
            server_address="x:1",
            node_config={},
            insecure=True,
        )


def test_a_superexec_asks_at_the_socket() -> None:
    patches.superexec_calls_with(Client)
    with pytest.raises(UsedError):
        run_superexec.run_superexec("/sock", insecure=True)


def test_a_superexec_starts_a_client_without_its_token_on_the_command_line() -> None:
    patches.superexec_launches_with(stop)
    executor, options = (
        get_executor(**EXECUTOR),
        {"insecure": True, "root_certificates_path": None},
    )
    plugin = AutoExecPlugin(
        runtime_api_address="/sock",
        runtime_dependency_install=False,
        executor=executor,
        **options,
    )
    with pytest.raises(UsedError):
        plugin.launch_task(
            token="s3cret", task=Task(type=TaskType.CLIENT_APP, task_id=1)
        )


def test_an_app_of_the_server_gets_its_token_and_its_command_line_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any user of the server's machine could read it, and act as the server's app."""
    seen = list[str]()

    def start(words: list[str], pass_fds: list[int]) -> None:
        told = SERVERAPP_COMMAND._parse_args_run_flwr_serverapp().parse_args(words[1:])
        assert (words[0], told.runtime_api_address, told.parent_pid) == (
            "flwr-serverapp",
            "127.0.0.1:1",
            1,
        )
        assert pass_fds == [int(Path(told.token_file).name)]
        seen.extend([" ".join(words), arguments.try_obtain_flwr_app_token(told)])

    patches.hide_tokens_of_apps()
    monkeypatch.setattr(patches.subprocess, "Popen", start)
    spec = ExecutionSpec(
        TaskType.SERVER_APP, "127.0.0.1:1", "s3cret", True, None, False, 1, False, 1
    )
    get_executor(**EXECUTOR).launch(spec)
    line, token = seen
    assert token == "s3cret"
    assert token not in line


def test_a_client_asks_at_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.clientapp_calls_with(Client)
    monkeypatch.setattr(run_clientapp, "event", lambda kind: None)
    with pytest.raises(UsedError):
        run_clientapp.run_clientapp("/sock", "token", insecure=True)


def test_a_superlink_has_our_middleware_first() -> None:
    patches.add_middleware([Middleware(UsedError), Middleware(Client)])  # type: ignore[arg-type]
    assert [one.cls for one in superlink.create_app().user_middleware[:2]] == [
        UsedError,
        Client,
    ]


def test_a_superlink_is_served_by_our_function(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.serve_superlink_with(stop)
    monkeypatch.setattr(superlink, "create_app", lambda *args: None)
    config = SimpleNamespace(
        host="127.0.0.1", port=9, ssl_keyfile=None, ssl_certfile=None
    )
    with pytest.raises(UsedError):
        LINK_COMMAND._run_superlink_http_api(config)


@pytest.mark.parametrize(
    ("apply", "owner", "name"),
    [
        (
            lambda: patches.serve_at_socket(Path("/s")),
            NODE_COMMAND,
            "_start_supernode_http_api",
        ),
        (lambda: patches.start_superexec_with(stop), node, "start_client_internal"),
        (lambda: patches.verify_apps_with(stop), node, "start_client_internal"),
        (lambda: patches.verify_apps_with(stop), node, "_pull_and_store_message"),
        (lambda: patches.verify_apps_with(stop), node, "_verify_fab"),
        (patches.end_node_on_failure, node, "start_client_internal"),
        (patches.end_node_on_failure, node, "_init_connection"),
        (lambda: patches.superexec_calls_with(Client), run_superexec, "run_superexec"),
        (
            lambda: patches.superexec_launches_with(stop),
            AutoExecPlugin.__mro__[1],
            "launch_task",
        ),
        (patches.hide_tokens_of_apps, type(get_executor(**EXECUTOR)), "launch"),
        (patches.hide_tokens_of_apps, arguments, "try_obtain_flwr_app_token"),
        (lambda: patches.clientapp_calls_with(Client), run_clientapp, "run_clientapp"),
        (lambda: patches.add_middleware([]), superlink, "_get_middleware"),
        (lambda: patches.add_middleware([]), superlink, "create_app"),
        (lambda: patches.limit_replies_with(Mock()), FLEET, "fleet_push_messages"),
        (lambda: patches.limit_replies_with(Mock()), FLEET, "fleet_push_object"),
        (
            lambda: patches.serve_superlink_with(stop),
            LINK_COMMAND,
            "_run_superlink_http_api",
        ),
    ],
)
def test_a_change_that_would_have_no_effect_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, apply: Callable[[], None], owner: object, name: str
) -> None:
    """Flower no longer looks up what is replaced, or has moved the function that
    did.
    """
    monkeypatch.setattr(owner, name, lambda: None)
    with pytest.raises(
        PatchError,
        match=rf"{name} is not as this version of fedaux expects .* its protection would have no effect",
    ):
        apply()
    monkeypatch.delattr(owner, name)
    with pytest.raises(PatchError, match=name):
        apply()


@pytest.mark.parametrize("code", [500, 503, 413])
def test_a_node_ends_when_a_reply_cannot_be_sent_unless_the_server_refuses_it(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Flower lost the reply, and its round waited for the timeout."""

    def fail(*args: Any) -> Any:
        response = httpx.Response(code, request=httpx.Request("POST", "https://link"))
        response.raise_for_status()

    @contextmanager
    def connect(server_address: str) -> Iterator[tuple[Any, ...]]:
        yield 7, *[fail] * 7

    monkeypatch.setattr(node, "_init_connection", connect)
    patches.end_node_on_failure()
    state, metadata = Mock(), SimpleNamespace(**METADATA)
    state.get_messages_legacy.return_value = [SimpleNamespace(metadata=metadata)]
    ending = pytest.raises(NodeFailure) if code >= 500 else nullcontext()
    with (
        node._init_connection(server_address="x:1") as (_, _, send, _, _, _, push, _),
        ending,
    ):  # type: ignore[call-arg]
        node._push_messages(state, Mock(), send, push)
    state.delete_messages.assert_called_once()


@pytest.mark.parametrize("place", ["supernode", "superlink", "superexec"])
def test_an_unknown_flower_is_refused_at_the_start(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyproject.toml kept it away from everybody, also from those without sites."""
    module = importlib.import_module(f"fedaux.deploy.{place}")
    patches.refuse_untested_flower()  # the installed one is known
    monkeypatch.setattr(versions.metadata, "version", lambda name: "1.43.0")
    with pytest.raises(
        PatchError, match=r"tested with Flower 1\.41 and 1\.42, and 1\.43"
    ):
        module.main()

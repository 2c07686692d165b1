"""No code comes to a site with an app, and nobody on the network controls the server."""

import importlib
import io
import warnings
import zipfile
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.fab import Fab

from fedaux.deploy import superlink, supernode
from fedaux.deploy.supernode import rejection_reason
from helpers.deployments import deploy


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build_fab_from_disk(deploy(tmp_path_factory.mktemp("guards") / "d") / "server" / "app")


def packed(files: dict[str, str], twice: str = "") -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as archive:
        warnings.simplefilter("ignore")  # about the name that comes twice
        for name in [*files, *([twice] if twice else [])]:
            archive.writestr(name, files[name])
    return buffer.getvalue()


def project(**parts: str) -> str:
    return "[tool.flwr.app.components]\n" + "".join(f'{name} = "{part}"\n' for name, part in parts.items())


OWN = {"serverapp": "anything:app", "clientapp": "fedaux.flower.client_app:app"}


def test_an_app_of_names_alone_is_run(good: bytes) -> None:
    assert rejection_reason(good) == ""
    assert rejection_reason(packed({"pyproject.toml": project(**OWN)})) == ""


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        (packed({"pyproject.toml": project(**OWN), "torch.py": "boom"}), "files of its own: torch.py"),
        (packed({"pyproject.toml": project(**OWN), "fedaux/__init__.py": ""}), "files of its own"),
        (packed({"pyproject.toml": project(**OWN)}, twice="pyproject.toml"), "files of its own"),
        (packed({"pyproject.toml": project(**{**OWN, "clientapp": "os:system"})}), "wants to run os:system"),
        (packed({"pyproject.toml": project(**OWN, agentapp="x:y")}), "agentapp"),
        (packed({"pyproject.toml": project(serverapp="a:b")}), "wants to run None"),
        (packed({"pyproject.toml": "[project]"}), "no Flower app"),
        (packed({"pyproject.toml": "["}), "no Flower app"),
        (packed({"other": ""}), "no Flower app"),
        (b"not a zip", "no Flower app"),
    ],
)
def test_any_other_app_is_refused(bundle: bytes, reason: str) -> None:
    assert reason in rejection_reason(bundle)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Flower's own loop of a node, as `fedaux.deploy.supernode` leaves it."""
    from flwr.supernode import start_client_internal as internal

    command = importlib.import_module("flwr.supernode.cli.flower_supernode")  # a function there has the same name
    for name in ("_pull_and_store_message", "_verify_fab"):  # to be put back
        monkeypatch.setattr(internal, name, getattr(internal, name))
    started = Mock()
    monkeypatch.setattr(command, "flower_supernode", started)
    supernode.main()
    started.assert_called_once_with()
    return internal


def pull(node: Any, monkeypatch: pytest.MonkeyPatch, bundle: bytes) -> tuple[Mock, list[Any]]:
    """(state of the node, what it answers at once) when a message of a run with this app comes in."""
    replies: list[Any] = []
    monkeypatch.setattr(node, "Message", lambda error, reply_to: error)
    monkeypatch.setattr(node, "_insert_message", lambda reply, state, store: replies.append(reply))
    state = Mock()
    state.get_run.return_value = None
    message = SimpleNamespace(metadata=SimpleNamespace(group_id="", run_id=7, message_type="train", message_id="m"))
    run = SimpleNamespace(fab_hash="h", series_id=1, override_config={}, primary_task_type="")
    store = Mock()
    store.preregister.return_value = []
    pulled = node._pull_and_store_message(
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


def test_a_node_stores_and_runs_a_good_app(node: Any, monkeypatch: pytest.MonkeyPatch, good: bytes) -> None:
    state, replies = pull(node, monkeypatch, good)
    assert replies == []
    assert state.store_fab.call_args.args[0].content == good
    state.create_task.assert_called_once()


def test_a_node_answers_for_a_refused_app_without_touching_it(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state, replies = pull(node, monkeypatch, packed({"pyproject.toml": project(**OWN), "evil.py": ""}))
    assert replies == [node.FAB_VERIFICATION_ERROR]
    state.store_fab.assert_not_called()
    state.create_task.assert_not_called()


@pytest.mark.parametrize(
    ("client", "local"),
    [
        (("127.0.0.1", 5), True),
        (("127.9.9.9", 5), True),
        (("::1", 5), True),
        (("::ffff:127.0.0.1", 5), True),
        (("::ffff:192.0.2.7", 5), False),
        (("192.0.2.7", 5), False),
        (("testclient", 5), False),
        (None, False),
    ],
)
def test_who_is_on_this_machine(client: tuple[str, int] | None, local: bool) -> None:
    assert superlink.is_local(client) is local


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("/v1/fleet/pull-messages", True),
        ("/health", True),
        ("/v1/control/start-run", False),
        ("/v1/runtime/acquire-task", False),
        ("/v1/fleets", False),
        ("/docs", False),
        ("/", False),
        ("//v1/fleet/x", False),
    ],
)
def test_what_is_open(path: str, public: bool) -> None:
    assert superlink.is_public(path) is public


def test_flowers_own_server_answers_strangers_only_about_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.superlink import extensions
    from flwr.superlink.main import create_app
    from starlette.testclient import TestClient

    command = importlib.import_module("flwr.superlink.cli.flower_superlink")
    monkeypatch.setattr(extensions, "get_middleware", extensions.get_middleware)  # to be put back
    started = Mock()
    monkeypatch.setattr(command, "flower_superlink", started)
    superlink.main()
    started.assert_called_once_with()
    app = create_app()
    closed = {"/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs"}
    opened = {"/v1/fleet/activate-node", "/health"}
    for caller, refused in (("192.0.2.7", closed), ("127.0.0.1", set())):
        client = TestClient(app, client=(caller, 1234))
        assert {path for path in closed | opened if client.post(path).status_code == 403} == refused

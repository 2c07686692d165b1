"""A node runs an app of names alone and refuses any that carries code."""

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

from fedaux.deploy import supernode
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

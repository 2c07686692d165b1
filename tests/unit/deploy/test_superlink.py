"""Other machines reach the fleet API and the health check only."""

import importlib
from unittest.mock import Mock

import pytest
import uvicorn

from fedaux.deploy import connection_limits, superlink


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
    monkeypatch.setattr(uvicorn, "run", uvicorn.run)
    monkeypatch.setattr(superlink, "raise_file_limit", Mock())
    started = Mock()
    monkeypatch.setattr(command, "flower_superlink", started)
    superlink.main()
    started.assert_called_once_with()
    assert uvicorn.run is connection_limits.serve
    app = create_app()
    closed = {"/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs"}
    opened = {"/v1/fleet/activate-node", "/health"}
    for caller, refused in (("192.0.2.7", closed), ("127.0.0.1", set())):
        client = TestClient(app, client=(caller, 1234))
        assert {path for path in closed | opened if client.post(path).status_code == 403} == refused
    assert client.post("/v1/fleet/activate-node", headers={"Content-Length": str(10**9)}).status_code == 413

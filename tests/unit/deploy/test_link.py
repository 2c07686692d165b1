"""The SuperLink from its operator's side; `end_to_end/test_deploy_live.py` has a real one."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedaux.deploy.link import ControlLink, LinkError
from helpers.deployments import unused_address


def test_a_server_that_is_down_is_an_error_that_names_it(folder: Path) -> None:
    env, address = folder / "server" / "server.env", unused_address()
    env.write_text(env.read_text().replace("LOCAL=127.0.0.1:8443", f"LOCAL={address}"))
    with pytest.raises(LinkError, match=f"the server at {address} does not do it"):
        ControlLink(folder / "server").nodes()


def test_keys_are_sent_as_flower_sends_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a relative folder, too, as in `fedaux deploy add-site hospitals oslo`."""

    class Client:
        def RegisterNode(self, request: object) -> object:
            self.request = request
            return type("Response", (), {"node_id": 7})

        def close(self) -> None:
            pass

    client, path = Client(), folder / "server" / "keys" / "berlin.pub"
    monkeypatch.setattr("flwr.cli.utils.init_http_client_from_connection", lambda connection: client)
    monkeypatch.chdir(folder)
    assert ControlLink(Path("server")).register(path, "berlin") == 7
    key = serialization.load_ssh_public_key(path.read_bytes())
    assert client.request.public_key == public_key_to_bytes(key)  # type: ignore[attr-defined,arg-type]
    assert client.request.name == "berlin"  # type: ignore[attr-defined]

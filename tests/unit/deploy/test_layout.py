"""A deployment is written once, whole, private where it must be, and in words that Flower itself understands."""

import stat
import tomllib
from pathlib import Path

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.deploy.layout import Address, DeployError, init
from fedaux.deploy.supernode import rejection_reason
from helpers.deployments import deploy


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_for_their_owner_alone(folder: Path) -> None:
    secret = ["ca/ca.key", "server/server.key", "server/superexec.secret", "sites/berlin/key", "sites/paris/key"]
    assert [mode(folder / name) for name in secret] == [0o600] * len(secret)
    assert [mode(folder / name) for name in ("ca", "server", "sites/berlin")] == [0o700] * 3
    keys = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(str(path.relative_to(folder)) for path in keys) == sorted(
        name for name in secret if "secret" not in name
    )


def test_sites_have_keys_of_their_own_and_the_server_their_public_halves(folder: Path) -> None:
    keys = {name: (folder / "sites" / name / "key.pub").read_bytes() for name in ("berlin", "paris")}
    assert len(set(keys.values())) == 2
    assert {path.stem: path.read_bytes() for path in (folder / "server" / "keys").iterdir()} == keys
    for name in keys:
        assert (folder / "sites" / name / "ca.crt").read_bytes() == (folder / "ca" / "ca.crt").read_bytes()


@pytest.mark.parametrize(
    ("host", "public", "local", "bind"),
    [
        ("127.0.0.1", "127.0.0.1:8443", "127.0.0.1:8443", "127.0.0.1"),
        ("localhost", "localhost:8443", "127.0.0.1:8443", "127.0.0.1"),
        ("fl.example.org", "fl.example.org:8443", "127.0.0.1:8443", "0.0.0.0"),
        ("192.0.2.7", "192.0.2.7:8443", "127.0.0.1:8443", "0.0.0.0"),
        ("::1", "[::1]:8443", "[::1]:8443", "::1"),
        ("2001:db8::7", "[2001:db8::7]:8443", "[::1]:8443", "::"),
    ],
)
def test_the_server_is_open_to_others_only_if_it_must_be(host: str, public: str, local: str, bind: str) -> None:
    address = Address(host, 8443)
    assert (address.public, address.local, address.bind) == (public, local, bind)


@pytest.mark.parametrize("host", ["", "a b", "$(id)", "host;ls", "-x"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    with pytest.raises(DeployError, match="--host"):
        Address(host, 8443)


def test_a_folder_is_not_written_twice(folder: Path) -> None:
    before = (folder / "sites" / "berlin" / "key").read_bytes()
    with pytest.raises(DeployError, match=r"already holds a deployment \(ca, server, sites\)"):
        deploy(folder)
    assert (folder / "sites" / "berlin" / "key").read_bytes() == before


def test_other_files_in_the_folder_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    deploy(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("sites", "error"),
    [((), DeployError), (("a", "a"), ConfigError), (("../up",), ConfigError), (("a b",), ConfigError)],
)
def test_names_of_sites_are_checked_before_anything_is_written(
    tmp_path: Path, sites: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"site"):
        init(tmp_path / "d", sites, Address("127.0.0.1", 8443), Config())
    assert not (tmp_path / "d").exists()


def test_paths_that_flower_cannot_be_told_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="quotes"):
        deploy(tmp_path / 'a"b')


def test_flower_accepts_the_app_and_so_does_a_site(folder: Path) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    config, warnings = load_and_validate(folder / "server" / "app" / "pyproject.toml", check_module=True)
    assert warnings == []
    told = config["tool"]["flwr"]["app"]["config"]
    assert Path(told["config"]) == folder / "server" / "fedaux.toml"
    assert Path(told["out"]) == folder / "server" / "run"
    assert rejection_reason(build_fab_from_disk(folder / "server" / "app")) == ""


def test_flower_reads_the_connection(folder: Path) -> None:
    from flwr.cli.flower_config import parse_superlink_connection

    table = tomllib.loads((folder / "server" / "flwr-home" / "config.toml").read_text())["superlink"]["fedaux"]
    read = parse_superlink_connection(table, "fedaux")
    assert (read.address, read.root_certificates) == ("127.0.0.1:8443", str(folder / "server" / "ca.crt"))
    assert not read.insecure


# Supervisors, README, commands

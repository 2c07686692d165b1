"""Every check finds what it is for, says what to do, and is content with a site that is in order."""

import shutil
import socket
import subprocess
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.config.schema import Config, DataConfig, PrivacyConfig
from fedaux.deploy import checks
from fedaux.deploy.certificates import create_authority, generate_key_pair, issue_server_certificate, load_key
from fedaux.deploy.check_result import CheckResult
from fedaux.deploy.checks import SiteError
from fedaux.deploy.server_checks import check_clock, check_registration, check_server
from fedaux.privacy.budget import BudgetStore
from fedaux.privacy.release import release_mechanism
from helpers.deployments import AWKWARD, answering, deploy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return deploy(tmp_path / AWKWARD)


@pytest.fixture
def site(folder: Path) -> Path:
    return folder / "sites" / "berlin"


@pytest.fixture
def config(site: Path) -> Config:
    return Config.load(site / "site.toml")


def problem(found: CheckResult, detail: str, remedy: str) -> None:
    assert found.ok is False
    assert detail in found.detail
    assert remedy in found.remedy


def fine(found: CheckResult, detail: str = "") -> None:
    assert (found.ok, found.remedy) == (True, "")
    assert detail in found.detail


def unused_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


# Certificate and key


def test_certificate(site: Path) -> None:
    fine(checks.check_certificate(site / "ca.crt"), "valid until")
    problem(
        checks.check_certificate(site / "ca.crt", now=datetime(2100, 1, 1, tzinfo=UTC)), "expired on", "ask the server"
    )
    (site / "ca.crt").write_bytes(create_authority(days=-3).certificate_pem())
    problem(checks.check_certificate(site / "ca.crt"), "expired on", "ask the server")
    (site / "ca.crt").write_text("nonsense")
    problem(checks.check_certificate(site / "ca.crt"), "is not a certificate", "ask the server")
    (site / "ca.crt").unlink()
    problem(checks.check_certificate(site / "ca.crt"), "No such file", "ask the server")


def test_key_pair(site: Path, folder: Path) -> None:
    fine(checks.check_key_pair(site))
    public = (site / "key.pub").read_bytes()
    (site / "key.pub").write_bytes(public.rstrip() + b" somebody@berlin\n")
    fine(checks.check_key_pair(site))
    shutil.copy(folder / "sites" / "paris" / "key.pub", site)
    problem(checks.check_key_pair(site), "key.pub is not key's", "fedaux deploy key berlin")
    (site / "key.pub").unlink()
    problem(checks.check_key_pair(site), "key.pub cannot be read", "fedaux deploy key berlin")


def test_a_key_of_another_kind(site: Path) -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    kind = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH)
    (site / "key").write_bytes(other.private_bytes(*kind, serialization.NoEncryption()))
    problem(checks.check_key_pair(site), "not an ECDSA key", "fedaux deploy key")
    (site / "key").write_text("nonsense")
    problem(checks.check_key_pair(site), "is not a key that Flower takes", "fedaux deploy key")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_key_that_wants_a_password(site: Path) -> None:
    (site / "key").unlink()
    words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "secret", "-f", str(site / "key")]
    subprocess.run(words, input="y\n", text=True, check=True)
    problem(checks.check_key_pair(site), "is not a key that Flower takes", "fedaux deploy key")


def test_key_that_others_can_read(site: Path) -> None:
    fine(checks.check_key_mode(site / "key"))
    for mode in (0o644, 0o640, 0o602):
        (site / "key").chmod(mode)
        problem(checks.check_key_mode(site / "key"), f"mode {mode:o}", "chmod 600")
    (site / "key").unlink()
    problem(checks.check_key_mode(site / "key"), "No such file", "see key")


# The server


def test_server_that_proves_itself(folder: Path, site: Path) -> None:
    with answering(folder / "server") as address:
        fine(check_server(address, site / "ca.crt"), address)


def test_server_of_another_authority(folder: Path, site: Path, tmp_path: Path) -> None:
    other = deploy(tmp_path / "other")
    with answering(other / "server") as address:
        problem(check_server(address, site / "ca.crt"), "does not prove to be the server", "send nothing")


def test_server_whose_certificate_expired_or_is_for_another_host(site: Path, tmp_path: Path) -> None:
    authority = create_authority()
    (site / "ca.crt").write_bytes(authority.certificate_pem())
    for hosts, days, reason in ((["127.0.0.1"], -1, "expired"), (["example.org"], 9, "IP address mismatch")):
        made = issue_server_certificate(authority, hosts, days)
        (tmp_path / "server.pem").write_bytes(made.certificate_pem())
        (tmp_path / "server.key").write_bytes(made.key_pem())
        with answering(tmp_path) as address:
            problem(check_server(address, site / "ca.crt"), reason, "send nothing")


def test_server_that_is_not_there(site: Path) -> None:
    problem(check_server(unused_address(), site / "ca.crt"), "Connection refused", "is it started")
    problem(check_server("no-such-host.invalid:8443", site / "ca.crt"), "cannot be reached", "SERVER in site.env")


def test_server_without_tls(site: Path) -> None:
    with answering(None) as address:
        problem(check_server(address, site / "ca.crt"), "does not speak TLS", "is it started")


@pytest.mark.parametrize(
    ("shift", "ok"), [(0, True), (50, True), (70, False), (-2, True), (-10, False), (-3600, False)]
)
def test_clock(folder: Path, site: Path, shift: int, ok: bool) -> None:
    """`shift`: how far the server's clock is ahead of ours."""
    with answering(folder / "server", formatdate(time.time() + shift, usegmt=True)) as address:
        found = check_clock(address, site / "ca.crt")
    assert found.ok is ok
    assert ("timedatectl" in found.remedy) is not ok


def test_a_server_that_says_no_time(folder: Path, site: Path) -> None:
    with answering(folder / "server", "noon") as address:
        assert check_clock(address, site / "ca.crt").ok is None


@pytest.fixture
def flower(folder: Path) -> Iterator[tuple[str, Any]]:
    """Flower's own server with the deployment's certificate: its address, and its memory."""
    import uvicorn
    from flwr.superlink.main import create_app

    made = create_app()
    made.state.enable_supernode_auth = True
    tls = {"ssl_certfile": folder / "server" / "server.pem", "ssl_keyfile": folder / "server" / "server.key"}
    address = unused_address()
    running = uvicorn.Server(uvicorn.Config(made, port=int(address.split(":")[1]), log_level="error", **tls))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.02)
    yield address, made.state.linkstate_factory.state()
    running.should_exit = True
    thread.join(10)


def test_registered(flower: tuple[str, Any], site: Path) -> None:
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    address, memory = flower
    problem(check_registration(address, site / "ca.crt", site / "key"), "does not know this key", "keys/NAME.pub")
    public = public_key_to_bytes(load_key(site / "key").public_key())
    node = memory.create_node("owner", "owner", public, 0)
    fine(check_registration(address, site / "ca.crt", site / "key"))
    (known,) = memory.get_node_info(node_ids=[node])
    assert known.status == "registered"  # asking did not start a node


def test_registration_that_cannot_be_found_out(site: Path) -> None:
    found = check_registration(unused_address(), site / "ca.crt", site / "key")
    assert (found.ok, found.detail) == (None, "is found out when the node starts")


# Settings, disk, budget, versions


def test_settings_of_another_site_or_of_a_simulation(config: Config) -> None:
    fine(checks.check_settings(config, "berlin"), "berlin")
    problem(checks.check_settings(config, "rome"), "site.toml says berlin", 'sites = ["rome"]')
    simulated = replace(config, data=DataConfig(clients=1))
    problem(checks.check_settings(simulated, "berlin"), "simulate", "partition = 'own'")


def test_settings_that_cannot_be_read(site: Path) -> None:
    (site / "site.toml").write_text("rounds = 'many'")
    found = checks.load_settings(site)
    assert isinstance(found, CheckResult)
    problem(found, "rounds must be a whole number", "site.toml")


def test_a_known_seed_is_a_problem(config: Config) -> None:
    fine(
        checks.check_privacy(config), "trained models leave WITHOUT noise; scores cost at most ε = 1 at δ = 1e-05, ever"
    )
    private = replace(config, privacy=PrivacyConfig(epsilon=0.5, epsilon_total=2, private_training=True))
    fine(checks.check_privacy(private), "scores and models cost at most ε = 2")
    seeded = replace(config, privacy=PrivacyConfig(unsafe_seed=0))
    problem(checks.check_privacy(seeded), "known seed", "delete privacy.unsafe_seed")


def test_disk(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    need = 1000 * checks.MAX_FEATURE_BYTES + checks.MARGIN_BYTES
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: usage(2 * need, need, need))
    fine(checks.check_disk(site, 1000))
    problem(checks.check_disk(site, 1001), "GiB free", "make room")


def test_account(config: Config, tmp_path: Path) -> None:
    fine(checks.check_budget(config, tmp_path), "ε = 0 of 1 spent in 0 entries")
    store = BudgetStore(tmp_path, config.privacy)
    with pytest.raises(ZeroDivisionError):  # an attempt that failed counts
        store.release("x", release_mechanism(9, config.privacy), lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    spent = checks.check_budget(config, tmp_path)
    assert spent.ok is None
    assert "ε = 1 of 1 spent in 1 entries" in spent.detail
    assert "privacy.epsilon_total in site.toml" in spent.remedy
    more = replace(config, privacy=replace(config.privacy, epsilon_total=3.0))
    fine(checks.check_budget(more, tmp_path), "ε = 1 of 3 spent")
    (tmp_path / "account.jsonl").write_text("{}}\n")
    problem(checks.check_budget(config, tmp_path), "is damaged", "refuses everything")


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    fine(checks.check_versions(), f"flwr {metadata.version('flwr')}")
    installed = metadata.version
    monkeypatch.setattr(checks.metadata, "version", lambda name: "1.20.0" if name == "flwr" else installed(name))
    problem(checks.check_versions(), "flwr 1.20.0", "pip install 'flwr")


# All together


def test_a_folder_that_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="is not a site"):
        list(checks.check_site(tmp_path))
    (tmp_path / "site.env").write_text("NAME=a\nPORT=1\n")
    with pytest.raises(SiteError, match="does not say SERVER"):
        list(checks.check_site(tmp_path))
    (tmp_path / "site.env").write_text("NAME=a\nPORT=1\nSERVER=example.org\n")
    with pytest.raises(SiteError, match="names no port"):
        list(checks.check_site(tmp_path))


def aim(site: Path, address: str) -> None:
    env = site / "site.env"
    env.write_text(env.read_text().replace("127.0.0.1:8443", address))


def test_a_site_that_is_in_order(flower: tuple[str, Any], site: Path) -> None:
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    address, memory = flower
    public = public_key_to_bytes(load_key(site / "key").public_key())
    memory.create_node("owner", "owner", public, 0)
    aim(site, address)
    done = CliRunner().invoke(app, ["deploy", "check", str(site)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()] == ["ok"] * 12


def test_a_site_with_problems_fails_and_goes_on_to_the_end(site: Path) -> None:
    aim(site, unused_address())
    (site / "key").chmod(0o644)
    (site / "vault").mkdir()
    (site / "vault" / "account.jsonl").write_text("damaged\n")
    done = CliRunner().invoke(app, ["deploy", "check", str(site)], catch_exceptions=False)
    assert done.exit_code == 1
    found = [line.split(":")[0].split(maxsplit=1) for line in done.output.splitlines() if "→" not in line]
    assert [name for mark, name in found if mark == "problem"] == ["key's secrecy", "server", "account"]
    assert [name for mark, name in found if mark == "unknown"] == ["clock", "registered"]
    assert len(found) == 12
    assert done.output.count("→") == 3


def test_nobody_is_called_whom_nobody_vouches_for(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "check_server", lambda address, ca: pytest.fail("called"))
    (site / "ca.crt").unlink()
    found = {finding.name: finding.ok for finding in checks.check_site(site)}
    assert (found["certificate"], found["server"], found["registered"]) == (False, None, None)


def test_a_source_beside_the_settings_is_found(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    module = "import numpy as np\nfrom fedaux.data.records import Corpus, Records\n"
    body = "def read():\n    return Corpus(Records(np.zeros((3, 2)), np.array([0, 1, 1])))\n"
    (site / "deploy_check_source.py").write_text(module + body)
    settings = site / "site.toml"
    settings.write_text(settings.read_text().replace('source = "digits"', 'source = "deploy_check_source:read"'))
    aim(site, unused_address())
    done = CliRunner().invoke(app, ["deploy", "check", str(site)], catch_exceptions=False)
    assert "3 records of 2 of 10 classes" in done.output


def test_a_new_key_is_a_good_one(tmp_path: Path) -> None:
    generate_key_pair(tmp_path / "rome")
    fine(checks.check_key_pair(tmp_path / "rome"))
    fine(checks.check_key_mode(tmp_path / "rome" / "key"))

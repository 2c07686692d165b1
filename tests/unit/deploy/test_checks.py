"""Every check finds what it is for, says what to do, and is content with a site that is
in order.
"""

import re
import shutil
import time
from collections import namedtuple
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, PrivacyConfig
from fedaux.deploy import checks
from fedaux.deploy.certificates import (
    create_authority,
    generate_key_pair,
    issue_server_certificate,
)
from fedaux.deploy.env import DeployError
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import release_mechanism
from helpers.accounts import enter, fails
from helpers.deployments import answering, deploy, fine, problem, unused_address


@pytest.fixture
def config(site: Path) -> Config:
    return Config.load(site / "site.toml")


def test_certificate(site: Path) -> None:
    fine(checks.check_certificate(site / "ca.crt"), "valid until")
    problem(
        checks.check_certificate(site / "ca.crt", now=datetime(2100, 1, 1, tzinfo=UTC)),
        "expired on",
        "ask the server",
    )
    (site / "ca.crt").write_bytes(create_authority(days=-3).certificate_pem())
    problem(checks.check_certificate(site / "ca.crt"), "expired on", "ask the server")
    (site / "ca.crt").write_text("nonsense")
    problem(
        checks.check_certificate(site / "ca.crt"),
        "is not a certificate",
        "ask the server",
    )
    (site / "ca.crt").unlink()
    problem(checks.check_certificate(site / "ca.crt"), "No such file", "ask the server")


def test_key_pair(site: Path, folder: Path) -> None:
    fine(checks.check_key_pair(site))
    public = (site / "key.pub").read_bytes()
    (site / "key.pub").write_bytes(public.rstrip() + b" somebody@berlin\n")
    fine(checks.check_key_pair(site))
    shutil.copy(folder / "sites" / "paris" / "key.pub", site)
    problem(
        checks.check_key_pair(site), "key.pub is not key's", "fedaux deploy key berlin"
    )
    (site / "key.pub").unlink()
    problem(
        checks.check_key_pair(site),
        "key.pub cannot be read",
        "fedaux deploy key berlin",
    )


def test_a_key_of_another_kind(site: Path) -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    kind = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH)
    (site / "key").write_bytes(other.private_bytes(*kind, serialization.NoEncryption()))
    problem(checks.check_key_pair(site), "not an ECDSA key", "fedaux deploy key")
    (site / "key").write_text("nonsense")
    problem(
        checks.check_key_pair(site),
        "is not a key that Flower takes",
        "fedaux deploy key",
    )


def test_key_that_others_can_read(site: Path) -> None:
    fine(checks.check_key_mode(site / "key"))
    for mode in (0o644, 0o640, 0o602):
        (site / "key").chmod(mode)
        problem(checks.check_key_mode(site / "key"), f"mode {mode:o}", "chmod 600")
    (site / "key").unlink()
    problem(checks.check_key_mode(site / "key"), "No such file", "see key")


# Settings, disk, budget, versions


def test_settings_of_another_site_or_of_a_simulation(config: Config) -> None:
    fine(checks.check_settings(config, "berlin"), "berlin")
    problem(
        checks.check_settings(config, "rome"),
        "site.toml says berlin",
        'sites = ["rome"]',
    )
    simulated = replace(config, data=DataConfig(clients=1))
    problem(checks.check_settings(simulated, "berlin"), "simulate", "partition = 'own'")


def test_settings_that_cannot_be_read(site: Path) -> None:
    (site / "site.toml").write_text("rounds = 'many'")
    found = checks.load_settings(site)
    assert isinstance(found, checks.CheckResult)
    problem(found, "rounds must be a whole number", "site.toml")


def test_a_known_seed_is_a_problem(config: Config) -> None:
    whole = "models WITHOUT noise. All noise together costs at most ε = 1, ever"
    fine(
        checks.check_privacy(config),
        f"what leaves: noisy sums at ε = 1, δ = 1e-05 and {whole}",
    )
    words = ("noisy sums", "second moments", "models")
    open_sums = replace(config, federation=replace(config.federation, sends=words))
    unused = "site.toml allows second moments WITHOUT noise as well, which fedaux does"
    fine(checks.check_privacy(open_sums), unused)
    head = replace(config, method="private-head", head_init="auto")
    only = replace(head, federation=replace(config.federation, sends=("noisy sums",)))
    assert "WITHOUT noise" not in checks.check_privacy(only).detail
    fine(checks.check_privacy(head), "site.toml allows models WITHOUT noise as well")
    federation = replace(config.federation, sends=("noisy sums", "noisy models"))
    trained = PrivacyConfig(epsilon=0.5, epsilon_total=2, private_training=True)
    private = replace(config, privacy=trained, federation=federation)
    total = "noisy models within a total of ε = 2, δ = 1e-05. All noise together costs at most ε = 2, ever"
    fine(checks.check_privacy(private), total)
    seeded = replace(config, privacy=PrivacyConfig(unsafe_seed=0))
    problem(checks.check_privacy(seeded), "known seed", "delete privacy.unsafe_seed")


def test_what_may_leave_is_what_the_method_here_and_at_the_server_needs(
    config: Config, folder: Path
) -> None:
    site = folder / "sites" / "berlin"

    def found(method: str, *words: str) -> checks.CheckResult:
        own = replace(
            config, method=method, federation=replace(config.federation, sends=words)
        )
        return checks.check_sends(own, site)

    fine(
        found("fedaux", "noisy sums", "models"),
        "noisy sums, models may leave, and nothing else",
    )
    line = 'write sends = ["noisy sums", "models"] in [federation]'
    problem(
        found("fedaux"), "does not list what may leave, so every order is refused", line
    )
    problem(
        found("fedaux", "models"),
        "fedaux sends noisy sums, and site.toml allows models only",
        line,
    )
    problem(
        found("fedavg", "models"),
        "the server's method is fedaux, this site's is fedavg",
        "agree with the server",
    )
    server = folder / "server" / "fedaux.toml"
    text, count = re.subn(
        r'(?m)^head_init = "\w+"', 'head_init = "ridge"', server.read_text()
    )
    assert count == 1
    server.write_text(text)
    asks_more = found("fedaux", "noisy sums", "models")
    problem(
        asks_more,
        "the server's run needs second moments, which may not leave",
        "agree with the server",
    )
    server.unlink()  # on another machine
    fine(found("fedaux", "noisy sums", "models"))


def test_disk(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    need = 1000 * checks.MAX_FEATURE_BYTES + checks.MARGIN_BYTES
    monkeypatch.setattr(
        checks.shutil, "disk_usage", lambda path: usage(2 * need, need, need)
    )
    fine(checks.check_disk(site, 1000))
    problem(checks.check_disk(site, 1001), "GiB free", "make room")


def test_account(config: Config, tmp_path: Path) -> None:
    fine(checks.check_budget(config, tmp_path), "ε = 0 of 1 spent in 0 entries")
    store = BudgetStore(tmp_path, config.privacy)
    with pytest.raises(ZeroDivisionError):  # an attempt that failed counts
        enter(store, "x", release_mechanism(9, config.privacy), fails)
    spent = checks.check_budget(config, tmp_path)
    assert spent.ok is None
    assert "ε = 1 of 1 spent in 1 entry" in spent.detail
    assert "privacy.epsilon_total in site.toml" in spent.remedy
    more = replace(config, privacy=replace(config.privacy, epsilon_total=3.0))
    fine(checks.check_budget(more, tmp_path), "ε = 1 of 3 spent")
    (tmp_path / "account.jsonl").write_text("{}}\n")
    problem(checks.check_budget(config, tmp_path), "is damaged", "refuses everything")


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    fine(checks.check_versions(), f"flwr {metadata.version('flwr')}")
    installed = metadata.version
    monkeypatch.setattr(
        checks.metadata,
        "version",
        lambda name: "1.20.0" if name == "flwr" else installed(name),
    )
    problem(checks.check_versions(), "flwr 1.20.0", "pip install 'flwr")


def test_a_new_key_is_a_good_one(tmp_path: Path) -> None:
    generate_key_pair(tmp_path / "rome")
    fine(checks.check_key_pair(tmp_path / "rome"))
    fine(checks.check_key_mode(tmp_path / "rome" / "key"))


# Records: what is declared, what is not, and whose they are


@pytest.fixture
def records(site: Path) -> Path:
    (site / "of berlin").mkdir()
    return site / "of berlin"


def look(
    site: Path,
    source: str,
    path: str = "",
    classes: str = "",
    person: str = "",
    cap: int = 0,
) -> tuple[int, checks.CheckResult]:
    data = DataConfig(
        source, path, classes=tuple(classes), person=person, partition="own"
    )
    privacy = (
        PrivacyConfig(unit="person", max_records_per_person=cap)
        if cap
        else PrivacyConfig()
    )
    records, found = checks.check_records(
        replace(Config.load(site / "site.toml"), data=data, privacy=privacy),
        site,
        "berlin",
    )
    return 0 if records is None else len(records), found


class Mixing(nn.Module):
    """Shows nobody whether it keeps records apart."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def mixing() -> nn.Module:
    return nn.Sequential(Mixing(), nn.Linear(64, 8))


def test_a_network_that_every_order_would_refuse(site: Path, config: Config) -> None:
    records, _ = checks.check_records(config, site, "berlin")
    assert records is not None
    fine(checks.check_own_networks(config, records, "berlin"), "can be used")
    own = replace(config, prototypes=(PrototypeSpec(f"{__name__}:mixing"),))
    problem(
        checks.check_own_networks(own, records, "berlin"),
        "is not known to keep records apart",
        "prototypes",
    )


def test_teaching_without_public_data_is_found_before_an_order_is(
    site: Path,
) -> None:
    """Check and preflight were content, the owners approved, and the run failed."""
    text = (site / "site.toml").read_text()
    (site / "site.toml").write_text(f'{text}\n[teachers]\nrun_on = "clients"\n')
    settings = checks.load_settings(site)
    assert isinstance(settings, checks.CheckResult)
    problem(settings, "teachers.run_on = 'clients': it needs aux.source", "site.toml")
    assert "Set method to that of the run" in settings.detail


def save(folder: Path, labels: list[int], persons: list[str] | None = None) -> None:
    np.save(folder / "x.npy", np.zeros((len(labels), 2), np.float32))
    np.save(folder / "y.npy", np.array(labels, dtype=np.int64))
    if persons is not None:
        np.save(folder / "patient.npy", np.array(persons))


def test_records_that_are_in_order(site: Path, records: Path) -> None:
    assert look(site, "digits", classes="0123456789") == (
        1797,
        checks.CheckResult("data", True, "1,797 records of 10 of 10 classes"),
    )
    save(records, [0, 2, 2, 0])
    for path in ("of berlin", "of {client}", str(records)):
        assert look(site, "npy", path, "abc") == (
            4,
            checks.CheckResult("data", True, "4 records of 2 of 3 classes"),
        )


def test_records_that_cannot_be_read(site: Path, records: Path) -> None:
    found = look(site, "npy", "of berlin", "abc")
    assert found[0] == 0
    problem(found[1], "x.npy is missing", "[data] in site.toml")
    np.save(records / "x.npy", np.zeros((4, 2), np.float32))
    problem(
        look(site, "npy", "of berlin", "abc")[1], "no labels", "[data] in site.toml"
    )
    save(records, [])
    problem(
        look(site, "npy", "of berlin", "abc")[1],
        "there are none",
        "[data] in site.toml",
    )
    problem(
        look(site, "nonsense", classes="abc")[1],
        "the source 'nonsense': it is unknown",
        "[data]",
    )


def test_classes_that_are_not_declared(site: Path, records: Path) -> None:
    save(records, [0, 1])
    problem(
        look(site, "npy", "of {client}")[1],
        f"or one a line into {records / 'classes.txt'}",
        "[data] in site.toml",
    )
    (records / "classes.txt").write_text("a\nb")
    assert look(site, "npy", "of {client}")[1].ok


def test_labels_that_are_not_declared(site: Path, records: Path) -> None:
    save(records, [0, 2, 7, 0])
    count, found = look(site, "npy", "of berlin", "ab")
    assert (count, found.ok, found.remedy) == (4, True, "")
    assert found.detail == (
        "4 records of 1 of 2 classes, but 2 have a label that is missing or not declared: "
        "they count, but teach nothing"
    )
    (records / "classes.txt").write_text("A\nB\nC")
    problem(
        look(site, "npy", "of berlin", "ab")[1],
        "not one of 4 records has a label that is declared",
        "data.classes",
    )


def test_persons_and_the_records_beyond_their_cap(site: Path, records: Path) -> None:
    save(records, [0, 1, 0, 1, 0, 1], ["ann", "ann", "ann", "bob", "", ""])
    assert "person" not in look(site, "npy", "of berlin", "ab", "patient")[1].detail
    for cap, left in ((1, 3), (2, 1), (3, 0)):
        found = look(site, "npy", "of berlin", "ab", "patient", cap)[1]
        assert found.ok
        assert found.detail.endswith(
            f"3 persons, records beyond privacy.max_records_per_person = {cap} and "
            f"left out: {left}"
        )
    save(records, [0, 1, 0], ["", "", ""])
    problem(
        look(site, "npy", "of berlin", "ab", "patient", 2)[1],
        "1 person, records",
        "see data.person",
    )
    problem(
        look(site, "npy", "of berlin", "ab", "nurse", 2)[1],
        "nurse.npy is missing",
        "[data] in site.toml",
    )


# The server


def test_server_that_proves_itself_and_one_of_another_authority(
    folder: Path, site: Path, tmp_path: Path
) -> None:
    with answering(folder / "server") as address:
        fine(checks.check_server(address, site / "ca.crt"), address)
    with answering(deploy(tmp_path / "other") / "server") as address:
        problem(
            checks.check_server(address, site / "ca.crt"),
            "does not prove to be the server",
            "send nothing",
        )


def test_server_whose_certificate_expired_or_is_for_another_host(
    site: Path, tmp_path: Path
) -> None:
    authority = create_authority()
    (site / "ca.crt").write_bytes(authority.certificate_pem())
    for hosts, days, reason in (
        (["127.0.0.1"], -1, "expired"),
        (["example.org"], 9, "IP address mismatch"),
    ):
        made = issue_server_certificate(authority, hosts, days)
        (tmp_path / "server.pem").write_bytes(made.certificate_pem())
        (tmp_path / "server.key").write_bytes(made.key_pem())
        with answering(tmp_path) as address:
            problem(
                checks.check_server(address, site / "ca.crt"), reason, "send nothing"
            )


def test_server_that_is_not_there(site: Path) -> None:
    problem(
        checks.check_server(unused_address(), site / "ca.crt"),
        "Connection refused",
        "is it started",
    )
    nowhere = checks.check_server("no-such-host.invalid:8443", site / "ca.crt")
    problem(nowhere, "cannot be reached", "SERVER in site.env")


def test_server_without_tls(site: Path) -> None:
    with answering(None) as address:
        problem(
            checks.check_server(address, site / "ca.crt"),
            "does not speak TLS",
            "is it started",
        )


@pytest.mark.parametrize(
    ("shift", "ok"),
    [(0, True), (50, True), (70, False), (-2, True), (-10, False), (-3600, False)],
)
def test_clock(folder: Path, site: Path, shift: int, ok: bool) -> None:
    """`shift`: how far the server's clock is ahead of ours."""
    with answering(
        folder / "server", formatdate(time.time() + shift, usegmt=True)
    ) as address:
        found = checks.check_clock(address, site / "ca.crt")
    assert found.ok is ok
    assert ("timedatectl" in found.remedy) is not ok


def test_a_server_that_says_no_time(folder: Path, site: Path) -> None:
    with answering(folder / "server", "noon") as address:
        assert checks.check_clock(address, site / "ca.crt").ok is None


def test_registration_that_cannot_be_found_out(site: Path) -> None:
    found = checks.check_registration(unused_address(), site / "ca.crt", site / "key")
    assert (found.ok, found.detail) == (None, "is found out when the node starts")


# All of them


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is not there"),
        ("NAME=a\n", "say SERVER"),
        ("NAME=a\nSERVER=b.org\n", "names no port"),
    ],
)
def test_a_folder_that_is_no_site(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "site.env").write_text(text)
    with pytest.raises(DeployError, match=said):
        list(checks.check_site(tmp_path))


def test_nobody_is_called_whom_nobody_vouches_for(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        checks, "check_server", lambda address, ca: pytest.fail("called")
    )
    (site / "ca.crt").unlink()
    found = {finding.name: finding.ok for finding in checks.check_site(site)}
    assert (found["certificate"], found["server"], found["registered"]) == (
        False,
        None,
        None,
    )

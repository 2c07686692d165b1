"""A server that proves itself, and every way in which one does not."""

import time
from email.utils import formatdate
from pathlib import Path

import pytest

from fedaux.deploy.certificates import create_authority, issue_server_certificate
from fedaux.deploy.server_checks import check_clock, check_registration, check_server
from helpers.deployments import answering, deploy, fine, problem, unused_address


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


def test_registration_that_cannot_be_found_out(site: Path) -> None:
    found = check_registration(unused_address(), site / "ca.crt", site / "key")
    assert (found.ok, found.detail) == (None, "is found out when the node starts")

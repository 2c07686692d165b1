"""Checks run in order, only at a folder that is a site, and call no server that nobody vouches for."""

from pathlib import Path

import pytest

from fedaux.deploy import checks
from fedaux.deploy.env_files import SiteError


def test_a_folder_that_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="is not a site"):
        list(checks.check_site(tmp_path))
    (tmp_path / "site.env").write_text("NAME=a\n")
    with pytest.raises(SiteError, match="does not say SERVER"):
        list(checks.check_site(tmp_path))
    (tmp_path / "site.env").write_text("NAME=a\nSERVER=example.org\n")
    with pytest.raises(SiteError, match="names no port"):
        list(checks.check_site(tmp_path))


def test_nobody_is_called_whom_nobody_vouches_for(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "check_server", lambda address, ca: pytest.fail("called"))
    (site / "ca.crt").unlink()
    found = {finding.name: finding.ok for finding in checks.check_site(site)}
    assert (found["certificate"], found["server"], found["registered"]) == (False, None, None)

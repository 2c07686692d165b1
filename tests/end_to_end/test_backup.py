"""`backup.sh` of a server and of a site: the archive holds what must not be lost and no
records, and what is unpacked from it is what was there.
"""

import os
import shutil
import sqlite3
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from fedaux.client.secure_sums import FOLDER as SUMS
from fedaux.core.io import DECODED
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.account_file import FILE as ACCOUNT
from fedaux.privacy.accounting import Mechanism
from fedaux.privacy.roster import ROSTER_FILE
from fedaux.runs.run_lock import LOCK_FILE as LOCK
from fedaux.runs.server_app import SPENDING_FILE as ACCOUNTS
from fedaux.server.run_state import STATE_FILE as STATE
from fedaux.server.run_state import RunState
from helpers.accounts import enter
from helpers.deployments import AWKWARD, deploy
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG

SAVES_A_ROUND = """\
#!/usr/bin/env bash
# In place of tar: another round is saved when it has copied the run.
PATH=${PATH#*:}
tar "$@" || exit
echo "$1" >>../copies
[ "$(grep -c -- -chf ../copies)" -gt "$SAVES" ] || echo again >>run/STATE
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deployment whose server has a run, and whose site has spent something."""
    made = deploy(tmp_path / AWKWARD)
    server = made / "server"
    site = made / "sites" / "berlin"
    finished_run(server / "run")
    (server / "run" / LOCK).write_text("somebody")
    (server / ACCOUNTS).write_text('{"berlin": [1, "s"]}')
    (server / "cache").mkdir()
    (server / "cache" / "large").write_text("")
    with sqlite3.connect(server / "superlink.db") as database:
        database.execute("create table node (name text)")
        database.execute("insert into node values ('berlin')")
    store = BudgetStore(site / "vault", TINY_CONFIG.privacy)
    enter(store, "x", Mechanism(99.0), lambda: b"drawn")
    for name in (
        "records/x.npy",
        "log/site.log",
        f"vault/{DECODED}/copy.npy",
        f"vault/{SUMS}/sum-x.json",
        f"vault/berlin/{SUMS}/sum-x.json",
    ):
        (site / name).parent.mkdir(parents=True)
        (site / name).write_text("private")
    return made


def back_up(
    folder: Path, archive: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "backup.sh", archive.name],
        cwd=archive.parent,  # a path is relative to where the operator is
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def unpack(archive: Path, folder: Path) -> Path:
    """As docs/sites-operate.md says."""
    folder.mkdir(mode=0o700)
    subprocess.run(["tar", "-xpzf", archive, "-C", folder], check=True)
    return folder


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_site_comes_back_with_its_vault_but_without_records_and_secrets_of_sums(
    folder: Path, tmp_path: Path
) -> None:
    site, archive = folder / "sites" / "berlin", tmp_path / "site.tar.gz"
    done = back_up(site, archive)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{archive.name} holds the site\n"
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    back = unpack(archive, tmp_path / "back")
    scripts = {"supernode.sh", "backup.sh"}
    settings = {"site.toml", "site.env", "ca.crt", "key", "key.pub"}
    vault = {ACCOUNT, "account.key", "release-x.json", "sum.key", ROSTER_FILE}
    assert files(back) == scripts | settings | {f"vault/{name}" for name in vault}
    for name in files(back):
        assert (back / name).read_bytes() == (site / name).read_bytes()
        assert (back / name).stat().st_mode == (site / name).stat().st_mode
    old = BudgetStore(site / "vault", TINY_CONFIG.privacy).account()
    assert BudgetStore(back / "vault", TINY_CONFIG.privacy).account() == old


def test_an_account_is_never_older_than_the_answers_beside_it(
    folder: Path, tmp_path: Path
) -> None:
    """Without its entry, an answer that has left could be drawn anew for nothing. Both
    the account of a site and those of its clients count.
    """
    site, archive = folder / "sites" / "berlin", tmp_path / "site.tar.gz"
    shutil.copy(site / "vault" / ACCOUNT, site / "vault" / "berlin" / ACCOUNT)
    assert back_up(site, archive).returncode == 0
    with tarfile.open(archive) as tar:
        names = [member.name for member in tar if member.isfile()]
    assert "vault/release-x.json" in names
    assert names[-2:] == [f"vault/{ACCOUNT}", f"vault/berlin/{ACCOUNT}"]
    assert len(names) == len(set(names))


def test_a_vault_on_another_disk_is_copied_itself(folder: Path, tmp_path: Path) -> None:
    site, archive = folder / "sites" / "berlin", tmp_path / "site.tar.gz"
    (site / "vault").rename(tmp_path / "elsewhere")
    (site / "vault").symlink_to(tmp_path / "elsewhere")
    assert back_up(site, archive).returncode == 0
    vault = unpack(archive, tmp_path / "back") / "vault"
    assert not vault.is_symlink()
    assert (vault / "release-x.json").read_bytes() == b"drawn"


def test_a_server_comes_back_with_its_run_and_its_database(
    folder: Path, tmp_path: Path
) -> None:
    server, archive = folder / "server", tmp_path / "server.tar.gz"
    # the SuperLink goes on, with what is not committed
    with sqlite3.connect(server / "superlink.db") as living:
        living.execute("insert into node values ('paris')")
        done = back_up(server, archive)
        living.rollback()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{archive.name} holds the server\n"
    back = unpack(archive, tmp_path / "back")
    with sqlite3.connect(back / "superlink.db") as database:
        assert database.execute("select name from node").fetchall() == [("berlin",)]
    assert stat.S_IMODE((back / "superlink.db").stat().st_mode) == 0o600
    assert RunState.load(back / "run").round == TINY_CONFIG.rounds
    for name in (
        "fedaux.toml",
        ACCOUNTS,
        ROSTER_FILE,
        "keys/berlin.pub",
        "server.key",
        "superexec.secret",
        "app/pyproject.toml",
    ):
        assert (back / name).read_bytes() == (server / name).read_bytes()
    assert not (back / "cache").exists()
    assert not (back / "run" / LOCK).exists()


@pytest.mark.parametrize(("saves", "copies"), [(1, 2), (9, 5)])
def test_a_run_that_is_saved_meanwhile_is_read_again(
    folder: Path, tmp_path: Path, saves: int, copies: int
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "tar").write_text(SAVES_A_ROUND.replace("STATE", STATE))
    (programs / "tar").chmod(0o700)
    path = f"{programs}:{os.environ['PATH']}"
    archive = tmp_path / "server.tar.gz"
    done = back_up(folder / "server", archive, PATH=path, SAVES=str(saves))
    assert (folder / "copies").read_text().count("-chf") == copies
    if copies > saves:
        assert (done.returncode, done.stderr) == (0, "")
        back = unpack(archive, tmp_path / "back") / "run" / STATE
        assert back.read_bytes() == (folder / "server" / "run" / STATE).read_bytes()
    else:
        assert done.returncode == 1
        refusal = "changed while it was copied, 5 times. Try again between two rounds"
        assert refusal in done.stderr
        assert not archive.exists()
    assert not list(tmp_path.glob(".backup-*"))


def test_nothing_is_overwritten(folder: Path, tmp_path: Path) -> None:
    site, archive = folder / "sites" / "berlin", tmp_path / "site.tar.gz"
    back_up(site, archive)
    before = archive.read_bytes()
    done = back_up(site, archive)
    assert done.returncode == 1
    assert "exists, and an old backup is not replaced" in done.stderr
    assert archive.read_bytes() == before


def test_a_backup_needs_a_name(folder: Path) -> None:
    words = [folder / "server" / "backup.sh"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: backup.sh ARCHIVE\n")

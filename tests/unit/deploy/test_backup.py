"""A backup holds what must not be lost and no records, and what is restored is what was
there.
"""

import json
import shutil
import sqlite3
import stat
import tarfile
from pathlib import Path

import pytest

from fedaux.deploy import backup as module
from fedaux.deploy.backup import back_up, restore
from fedaux.deploy.layout import DeployError
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import Mechanism
from fedaux.server.run_state import RunState
from helpers.accounts import enter
from helpers.deployments import deploy
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deployment whose server has a run, and whose site has spent something."""
    made = deploy(tmp_path / "d")
    server, site = made / "server", made / "sites" / "berlin"
    finished_run(server / "run")
    (server / "run" / "run.lock").write_text("somebody")
    (server / "accounts.json").write_text('{"berlin": [1, "s"]}')
    (server / "cache").mkdir()
    (server / "cache" / "large").write_text("")
    with sqlite3.connect(server / "superlink.db") as database:
        database.execute("create table node (name text)")
        database.execute("insert into node values ('berlin')")
    store = BudgetStore(site / "vault", TINY_CONFIG.privacy)
    enter(store, "x", Mechanism(99.0), lambda: b"drawn")
    for name in ("records/x.npy", "vault/decoded/copy.npy", "vault/sums/sum-x.json"):
        (site / name).parent.mkdir(parents=True)
        (site / name).write_text("private")
    return made


def test_a_site_comes_back_with_its_vault_but_without_records_and_secrets_of_sums(
    folder: Path, tmp_path: Path
) -> None:
    site, archive, back = (
        folder / "sites" / "berlin",
        tmp_path / "site.tar.gz",
        tmp_path / "back",
    )
    made = back_up(site, archive)
    assert (made.party, made.entries) == ("site", {"vault": 1})
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert restore(archive, back) == made
    kept = {
        path.relative_to(back).as_posix() for path in back.rglob("*") if path.is_file()
    }
    files = {"site.toml", "site.env", "supernode.sh", "ca.crt", "key", "key.pub"}
    vault = {"account.jsonl", "account.key", "release-x.json", "sum.key", "roster.json"}
    assert kept == files | {f"vault/{name}" for name in vault}
    for name in kept:
        assert (back / name).read_bytes() == (site / name).read_bytes()
        assert (back / name).stat().st_mode == (site / name).stat().st_mode
    assert stat.S_IMODE(back.stat().st_mode) == 0o700
    old, new = (
        BudgetStore(path / "vault", TINY_CONFIG.privacy).account()
        for path in (site, back)
    )
    assert old == new


def test_a_server_comes_back_with_its_run_and_its_database(
    folder: Path, tmp_path: Path
) -> None:
    server, archive, back = (
        folder / "server",
        tmp_path / "server.tar.gz",
        tmp_path / "back",
    )
    # the SuperLink goes on, with what is not committed
    with sqlite3.connect(server / "superlink.db") as living:
        living.execute("insert into node values ('paris')")
        made = back_up(server, archive)
        living.rollback()
    assert (made.party, made.entries) == ("server", {"berlin, as it said": 1})
    restore(archive, back)
    with sqlite3.connect(back / "superlink.db") as database:
        assert database.execute("select name from node").fetchall() == [("berlin",)]
    assert RunState.load(back / "run").round == TINY_CONFIG.rounds
    for name in (
        "fedaux.toml",
        "accounts.json",
        "keys/berlin.pub",
        "server.key",
        "superexec.secret",
        "app/pyproject.toml",
    ):
        assert (back / name).read_bytes() == (server / name).read_bytes()
    assert not (back / "cache").exists()
    assert not (back / "run" / "run.lock").exists()
    assert not (back / "backup.json").exists()


def test_a_run_that_is_saved_meanwhile_is_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []

    def copy(source: Path, target: Path, **options: object) -> object:
        done = copytree(source, target, **options)  # type: ignore[arg-type]
        copies.append(source)
        if source.name == "run" and copies.count(source) == 1:
            finished_run(source)
        return done

    copytree = shutil.copytree
    monkeypatch.setattr(shutil, "copytree", copy)
    back_up(folder / "server", tmp_path / "a.tar.gz")
    assert copies.count(folder / "server" / "run") == 2
    monkeypatch.setattr(module, "_state", lambda path: (len(copies), 0))
    with pytest.raises(
        DeployError,
        match="changed while it was copied, 5 times; try again between two rounds",
    ):
        back_up(folder / "server", tmp_path / "b.tar.gz")
    assert not (tmp_path / "b.tar.gz").exists()


def test_nothing_is_overwritten(folder: Path, tmp_path: Path) -> None:
    site, archive = folder / "sites" / "berlin", tmp_path / "site.tar.gz"
    back_up(site, archive)
    with pytest.raises(DeployError, match="exists; an old backup is not replaced"):
        back_up(site, archive)
    with pytest.raises(DeployError, match="is not empty; restore into a new folder"):
        restore(archive, site)


def test_other_folders_and_files_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="neither a server nor a site"):
        back_up(folder, tmp_path / "a.tar.gz")
    (tmp_path / "text").write_text("no archive")
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(tmp_path / "text", "text")
    for name in ("text", "other.tar", "missing"):
        with pytest.raises(DeployError, match="is no backup of"):
            restore(tmp_path / name, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_an_archive_writes_nothing_outside_its_folder(tmp_path: Path) -> None:
    facts = {"party": "site", "made": "", "fedaux": "", "entries": {}}
    (tmp_path / "manifest").write_text(json.dumps(facts))
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(tmp_path / "manifest", "./backup.json")
        tar.add(tmp_path / "manifest", "../outside")
    with pytest.raises(DeployError, match="is no backup of"):
        restore(tmp_path / "evil.tar", tmp_path / "a" / "back")
    assert not (tmp_path / "a" / "outside").exists()

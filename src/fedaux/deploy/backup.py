"""`fedaux deploy backup | restore`: what a server or a site must not lose, as one
private archive.

It holds no records, caches or copies of images. A run or a node may keep running:
SQLite copies the link's database, a run's folder is read again if a round was saved in
between, and any copy of a vault is consistent, if not the newest.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedaux.client.secure_sums import FOLDER as SUMS
from fedaux.deploy.layout import DeployError
from fedaux.privacy.account import FILE as ACCOUNT
from fedaux.privacy.account import count_costly, read_account
from fedaux.privacy.roster import ROSTER_FILE
from fedaux.server.run_lock import FILE as LOCK
from fedaux.server.run_state import STATE_FILE

MANIFEST = "backup.json"
DATABASE = "superlink.db"
# of a server: how many entries each site has said that its account has
ACCOUNTS = "accounts.json"
KEYS = ("ca.crt", "server.pem", "server.key", "superexec.secret", "keys")
SERVER = (
    "fedaux.toml",
    "server.env",
    "*.sh",
    "*.py",
    "classes.txt",
    "app",
    ACCOUNTS,
    ROSTER_FILE,
    "run",
    *KEYS,
)
SITE = (
    "site.toml",
    "site.env",
    "*.sh",
    "*.py",
    "classes.txt",
    "ca.crt",
    "key",
    "key.pub",
    "vault",
)
# A site that went back into a secure sum with its old secrets could mask two vectors
# alike (docs/secure-sums.md).
LEFT_OUT = shutil.ignore_patterns(
    "decoded", SUMS, ".lock", LOCK, "__pycache__", "*.log"
)
TRIES = 5


@dataclass(frozen=True)
class Backup:
    """The manifest of an archive."""

    party: str  # server or site
    made: str  # a time, UTC
    fedaux: str  # version
    # of each account: of a site by its folder, as a server has heard of them by name
    entries: dict[str, int]


def back_up(folder: Path, archive: Path) -> Backup:
    """Write a new archive, readable by its owner alone: it holds keys."""
    folder = folder.expanduser().absolute()
    party = _party(folder)
    if archive.exists():
        raise DeployError(
            f"{archive} exists; an old backup is not replaced, name a new one"
        )
    with tempfile.TemporaryDirectory(
        dir=archive.absolute().parent, prefix=".backup-"
    ) as name:
        staged = Path(name) / "files"
        staged.mkdir()
        for pattern in SERVER if party == "server" else SITE:
            for path in sorted(folder.glob(pattern)):
                _copy(path, staged / path.name)
        if (folder / DATABASE).is_file():
            _copy_database(folder / DATABASE, staged / DATABASE)
        made = datetime.now(UTC).isoformat(timespec="seconds")
        backup = Backup(party, made, version("fedaux"), account_entries(staged))
        (staged / MANIFEST).write_text(
            json.dumps(asdict(backup), indent=1), encoding="utf-8"
        )
        with tarfile.open(Path(name) / "archive", "w:gz") as tar:
            tar.add(staged, ".")
        (Path(name) / "archive").chmod(0o600)
        (Path(name) / "archive").replace(archive)
    return backup


def restore(archive: Path, folder: Path) -> Backup:
    """Write the files of an archive into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise DeployError(
            f"{folder} is not empty; restore into a new folder, and move it when you "
            "have looked at it"
        )
    try:
        with tarfile.open(archive) as tar:
            told: dict[str, Any] = json.load(tar.extractfile(f"./{MANIFEST}"))  # type: ignore[arg-type]
            backup = Backup(**told)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            tar.extractall(folder, filter="data")
    except (OSError, KeyError, TypeError, ValueError, tarfile.TarError) as error:
        raise DeployError(
            f"{archive} is no backup of `fedaux deploy backup`: {error}"
        ) from error
    folder.chmod(0o700)
    (folder / MANIFEST).unlink()
    return backup


def account_entries(folder: Path) -> dict[str, int]:
    """Count the entries that cost something in each account below a site's folder, or
    that a server has heard of.
    """
    if (folder / ACCOUNTS).is_file():
        heard = json.loads((folder / ACCOUNTS).read_bytes())
        return {
            f"{name}, as it said": int(entries)
            for name, (entries, _) in sorted(heard.items())
        }
    accounts = sorted(path.parent for path in folder.glob(f"vault/**/{ACCOUNT}"))
    return {
        str(path.relative_to(folder)): count_costly(read_account(path)[1])
        for path in accounts
    }


def _party(folder: Path) -> str:
    if (folder / "site.env").is_file():
        return "site"
    if (folder / "server.env").is_file():
        return "server"
    raise DeployError(
        f"{folder} is the folder of neither a server nor a site: name one, such as "
        "hospitals/server"
    )


def _copy(source: Path, target: Path) -> None:
    if not source.is_dir():
        shutil.copy2(source, target)
        return
    for _ in range(TRIES):
        before = _state(source)
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(source, target, ignore=LEFT_OUT)
        except (shutil.Error, FileNotFoundError):  # a file that was replaced in between
            continue
        if before == _state(source):
            return
    raise DeployError(
        f"{source} changed while it was copied, {TRIES} times; try again between two "
        "rounds"
    )


def _state(folder: Path) -> tuple[int, int]:
    """Return a value that changes whenever a run is saved."""
    try:
        found = (folder / STATE_FILE).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _copy_database(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a database while the SuperLink keeps writing."""
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as origin,
        closing(sqlite3.connect(target)) as copy,
    ):
        origin.backup(copy)
    target.chmod(0o600)

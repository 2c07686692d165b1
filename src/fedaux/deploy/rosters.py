"""The roster of secure sums in a deployment: made at the server from the keys of sites,
pinned by each site's owner.

A site's `key.pub` carries the public half of its `vault/sum.key` as a comment. The
server writes `roster.json` whenever a site comes, goes or has another key. It counts at
a site only when the owner has installed it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedaux.core.io import write_atomically
from fedaux.deploy.certificates import SUM_KEY
from fedaux.deploy.env import DeployError, read_env
from fedaux.privacy.roster import (
    ROSTER_FILE,
    Roster,
    load_signing_key,
    read_roster,
    roster_fingerprint,
    write_roster,
)


def key_roster(server: Path) -> dict[str, bytes]:
    """The sites whose keys are in the server's folder, with the keys that they sign
    sums with.
    """
    roster = {}
    for path in sorted((server / "keys").glob("*.pub")):
        key = SUM_KEY.search(path.read_bytes())
        if key:
            roster[path.stem] = bytes.fromhex(key[1].decode())
    return roster


def write_server_roster(server: Path) -> Roster:
    """Write the server's own copy, which is also the file that sites get."""
    roster = key_roster(server)
    write_roster(server / ROSTER_FILE, roster)
    return roster


@dataclass(frozen=True)
class RosterChange:
    """What a new roster would change at a site."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]  # the same name with another key
    fingerprint: str  # of the new one

    @property
    def text(self) -> str:
        lines = [f"{name} joins" for name in self.added]
        lines += [f"{name} leaves" for name in self.removed]
        lines += [f"{name} has ANOTHER KEY" for name in self.changed]
        if not lines:
            lines = ["no site comes, goes or changes"]
        lines.append(
            f"fingerprint of the new roster, the same at every site: {self.fingerprint}"
        )
        return "\n".join(lines)


def compare_roster(site: Path, file: Path) -> RosterChange:
    """Compare a new roster with the one at the site. One that has another key for this
    very site is refused.
    """
    new = read_roster(file)
    here = site / "vault" / ROSTER_FILE
    old: Roster = {}
    if here.is_file():
        old = read_roster(here)
    problem = own_problem(site, new)
    if problem:
        raise DeployError(
            f"Cannot install {file}: {problem}. Ask the server for a roster with this "
            "site's key."
        )
    both = sorted(new.keys() & old.keys())
    return RosterChange(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(name for name in both if new[name] != old[name]),
        fingerprint=roster_fingerprint(new),
    )


def install_roster(site: Path, file: Path) -> None:
    """Pin a roster at a site, whose owner has compared its fingerprint with those of
    others.
    """
    write_atomically(site / "vault" / ROSTER_FILE, file.read_bytes())


def own_problem(site: Path, roster: Roster) -> str:
    """Why a roster is not one for this site, or "" if it has the site's own key under its
    name.
    """
    name = read_env(site / "site.env")["NAME"]
    if name not in roster:
        return f"it does not name this site, {name}"
    signing_key = load_signing_key(site / "vault")
    if roster[name] != signing_key.public_key().public_bytes_raw():
        return (
            f"its key for {name} is not this site's own: someone would sign in its "
            "place"
        )
    return ""

"""The roster of secure sums in a deployment: made at the server from the keys of sites,
pinned by each site's owner.

A site's `key.pub` carries the public half of its `vault/sum.key` as a comment. The
server writes `roster.json` whenever a site comes, goes or has another key; it counts at
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
    fingerprint,
    load_signing_key,
    read_roster,
    write_roster,
)


def key_roster(server: Path) -> dict[str, bytes]:
    """The sites whose keys are in the server's folder, with the keys that they sign
    sums with.
    """
    found = {
        path.stem: SUM_KEY.search(path.read_bytes())
        for path in sorted((server / "keys").glob("*.pub"))
    }
    return {name: bytes.fromhex(key[1].decode()) for name, key in found.items() if key}


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
        parts = (
            ("joins", self.added),
            ("leaves", self.removed),
            ("has ANOTHER KEY", self.changed),
        )
        lines = [f"{name} {what}" for what, names in parts for name in names] or [
            "no site comes, goes or changes"
        ]
        return "\n".join(
            [
                *lines,
                (
                    "fingerprint of the new roster, the same at every site: "
                    f"{self.fingerprint}"
                ),
            ]
        )


def compare_roster(site: Path, file: Path) -> RosterChange:
    """Compare a new roster with the one at the site; one that has another key for this
    very site is refused.
    """
    new, here = read_roster(file), site / "vault" / ROSTER_FILE
    old = read_roster(here) if here.is_file() else {}
    problem = own_problem(site, new)
    if problem:
        raise DeployError(f"{file} is not installed: {problem}")
    both = sorted(new.keys() & old.keys())
    return RosterChange(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(name for name in both if new[name] != old[name]),
        fingerprint=fingerprint(new),
    )


def install_roster(site: Path, file: Path) -> None:
    """Pin a roster at a site, whose owner has compared its fingerprint with those of
    others.
    """
    write_atomically(site / "vault" / ROSTER_FILE, file.read_bytes())


def own_problem(site: Path, roster: Roster) -> str:
    """Why a roster is not one for this site; "" if it has the site's own key under its
    name.
    """
    name, own = (
        read_env(site / "site.env")["NAME"],
        load_signing_key(site / "vault").public_key().public_bytes_raw(),
    )
    if name not in roster:
        return f"it does not name this site, {name}"
    return (
        ""
        if roster[name] == own
        else f"its key for {name} is not this site's own: somebody would sign in its place"
    )

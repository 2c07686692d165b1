"""The owner's audit: runs every attack on a site's own settings, each in a folder of
its own.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedaux.audit.approvals import own_approvals
from fedaux.audit.gate import own_gate
from fedaux.audit.own_site import OwnSite
from fedaux.audit.releases import own_account, own_map, own_networks, own_source
from fedaux.audit.result import AttackResult, AttackSkipped
from fedaux.audit.secure_sums import own_sums
from fedaux.config.schema import Config
from fedaux.core.errors import unknown_name
from fedaux.core.progress import WorkProgress, report

OwnAttack = Callable[[OwnSite, Path], AttackResult]  # (settings, an empty folder)
OWN_ATTACKS: dict[str, tuple[str, OwnAttack]] = {  # what is attacked, and how
    "own-gate": ("every kind of order, against what may leave", own_gate),
    "own-sums": ("unequal orders and copied keys in a secure sum", own_sums),
    "own-approvals": ("orders beyond the plan that an owner approved", own_approvals),
    "own-networks": ("the networks of the settings", own_networks),
    "own-source": ("an odd record in the source's format, on others", own_source),
    "own-map": ("a public map of other types", own_map),
    "own-account": ("the owner's total, by asking again", own_account),
}
# an account syncs to disk before each answer; in memory that costs nothing
MEMORY = Path("/dev/shm")


def audit_site(config: Config, only: Collection[str] = ()) -> Iterator[AttackResult]:
    """Attack the settings of a site, with synthetic records in the format of its source.

    Args:
        config: The site's settings, as its `site.toml` has them.
        only: Names of the attacks to run. By default all of `OWN_ATTACKS`.

    Returns:
        An iterator over the results. An attack runs when its result is asked for, and
        is reported before (`fedaux.core.progress`).
    """
    for name in only:
        if name not in OWN_ATTACKS:
            raise unknown_name("attack", name, OWN_ATTACKS)
    names = only or OWN_ATTACKS
    for number, name in enumerate(names, 1):
        report(WorkProgress("attacks", number, len(names), name))
        yield _attack(name, config)


def _attack(name: str, config: Config) -> AttackResult:
    attacked, own_attack = OWN_ATTACKS[name]
    result = run_attack(lambda folder: own_attack(OwnSite.of(config), folder))
    return replace(result, name=name, attacked=attacked)


def run_attack(attack: Callable[[Path], AttackResult]) -> AttackResult:
    """Run an attack in a temporary folder, with the sites' logs silenced."""
    parent = MEMORY if MEMORY.is_dir() else None
    temporary = tempfile.TemporaryDirectory(prefix="fedaux-audit-", dir=parent)
    with temporary as folder, _silent():
        try:
            return attack(Path(folder))
        except AttackSkipped as reason:
            return AttackResult(0.0, 0.0, str(reason), skipped=True)


@contextmanager
def _silent() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)

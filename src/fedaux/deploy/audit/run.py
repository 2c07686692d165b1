"""Runs every attack on the whole client, each against sites of its own."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedaux.core.errors import unknown_name
from fedaux.core.progress import AuditProgress, OnProgress, no_progress
from fedaux.deploy.audit import accounts, dropin, noise, records, statements, texts, wire
from fedaux.deploy.audit.attack_result import Attack, AttackResult, AuditConfig

ATTACKS: dict[str, Attack] = {
    "text-length": texts.text_length,
    "batch-shape-map": records.map_kernel,
    "batch-shape-network": records.network_kernel,
    "batch-shape-training": records.training_kernel,
    "oracle": wire.oracle,
    "fields": wire.fields,
    "new-label": texts.new_label,
    "hello": wire.hello,
    "drop-in-batchnorm": dropin.batch_norm,
    "lost-replies": statements.lost_replies,
    "spare-clients": statements.spare_clients,
    "rounds-raised": accounts.rounds_raised,
    "questions": accounts.repeated_requests,
    "wrong-size": accounts.wrong_size,
    "half-way": accounts.failed_release,
    "old-copy": accounts.old_account,
    "reported": accounts.reported_total,
    "many-names": accounts.many_names,
    "errors": wire.errors,
    "printed": statements.rounded_down,
    "person": records.person,
    "person-training": records.person_training,
    "noise-scores": noise.exchanged,
    "noise-mean": noise.added,
    "noise-drop-in": dropin.noise,
    "noise-training": noise.trained,
    "canaries": noise.canaries,
}
MEMORY = Path("/dev/shm")  # an account syncs to disk before each answer; in memory that costs nothing


def audit_client(
    audit: AuditConfig | None = None, only: Collection[str] = (), on_progress: OnProgress = no_progress
) -> Iterator[AttackResult]:
    """Attack the real client handlers, and yield the result of each attack as soon as it is over.

    Args:
        audit: The ε that is claimed, its δ, and how many replies are drawn of each neighbour.
        only: Names of attacks; without any, all of `ATTACKS`.
        on_progress: Called with an `AuditProgress` before each attack.
    """
    for name in only:
        if name not in ATTACKS:
            raise unknown_name("attack", name, ATTACKS)
    names = only or ATTACKS
    for number, name in enumerate(names, 1):
        on_progress(AuditProgress(name, number, len(names)))
        yield attack(name, audit or AuditConfig())


def attack(name: str, audit: AuditConfig) -> AttackResult:
    """One attack, in a temporary folder, with the sites' logs silenced."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fedaux-audit-", dir=where) as folder, _silent():
        return ATTACKS[name](Path(folder), audit)


@contextmanager
def _silent() -> Iterator[None]:
    logger = logging.getLogger("fedaux.flower.error_redaction")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before

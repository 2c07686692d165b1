"""Runs every attack on the whole client, each against sites of its own."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedaux.core.errors import unknown_name
from fedaux.core.progress import AuditProgress, OnProgress, no_progress
from fedaux.deploy.audit import accounts, dropin, noise, records, statements, texts, wire
from fedaux.deploy.audit.attack_result import Attack, AttackResult, AttackSkipped, AuditConfig

ATTACKS: dict[str, tuple[str, Attack]] = {  # what is attacked, and how
    "text-length": ("the length of one text, on the features of others", texts.text_length),
    "batch-shape-map": ("one record more, on the public map of others", records.map_kernel),
    "batch-shape-network": ("one record more, on the features of others", records.network_kernel),
    "batch-shape-training": ("one record more, on the gradients of others", records.training_kernel),
    "oracle": ("orders beyond hello, prepare and train, and for sums", wire.oracle),
    "fields": ("fields of replies of two neighbours", wire.fields),
    "new-label": ("a label that is not declared, on those of others", texts.new_label),
    "hello": ("a label that is not declared, in Hello", wire.hello),
    "drop-in-batchnorm": ("a network that normalises over the batch", dropin.batch_norm),
    "lost-replies": ("the total that the server prints", statements.lost_replies),
    "spare-clients": ("the total, beside spare clients", statements.spare_clients),
    "rounds-raised": ("the owner's total, by more rounds", accounts.rounds_raised),
    "questions": ("the owner's total, by asking again", accounts.repeated_requests),
    "wrong-size": ("the owner's total, by a false size", accounts.wrong_size),
    "half-way": ("the total that the client reports, after a failure", accounts.failed_release),
    "old-copy": ("the owner's total, by an old account", accounts.old_account),
    "reported": ("the total that the client reports", accounts.reported_total),
    "many-names": ("the owner's total, by names", accounts.many_names),
    "errors": ("a record in the text of an exception", wire.errors),
    "printed": ("ε as statements and tables print it", statements.rounded_down),
    "person": ("all records of a person, on scores", records.person),
    "person-training": ("all records of a person, on training", records.person_training),
    "noise-scores": ("noise on class sums, replace-one", noise.exchanged),
    "noise-mean": ("noise on a mean of φ, add-remove", noise.added),
    "noise-drop-in": ("noise of a drop-in's release", dropin.noise),
    "noise-training": ("noise on gradients", noise.trained),
    "canaries": ("who took part in private training", noise.canaries),
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
    attacked, run = ATTACKS[name]
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fedaux-audit-", dir=where) as folder, _silent():
        try:
            result = run(Path(folder), audit)
        except AttackSkipped as reason:
            result = AttackResult(0.0, 0.0, str(reason), skipped=True)
    return replace(result, name=name, attacked=attacked)


@contextmanager
def _silent() -> Iterator[None]:
    logger = logging.getLogger("fedaux.flower.error_redaction")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before

"""Runs every attack on the whole client, each against sites of its own."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedaux.audit import accounts, messages, records
from fedaux.audit.attack import Attack, AttackResult, AttackSkipped, AuditConfig
from fedaux.audit.own_site import OWN_ATTACKS, OwnSite, odd_records
from fedaux.config.schema import Config
from fedaux.core.errors import unknown_name
from fedaux.core.progress import OnProgress, WorkProgress, no_progress

ATTACKS: dict[str, tuple[str, Attack]] = {  # what is attacked, and how
    "text-length": (
        "the length of one text, on the features of others",
        records.text_length,
    ),
    "batch-shape-map": (
        "one record more, on the public map of others",
        records.map_kernel,
    ),
    "batch-shape-network": (
        "one record more, on the features of others",
        records.network_kernel,
    ),
    "batch-shape-training": (
        "one record more, on the gradients of others",
        records.training_kernel,
    ),
    "integer-map": (
        "one record more, on an integer map of others",
        records.integer_map,
    ),
    "embedding-memory": (
        "a network that rewrites its own weights",
        messages.embedding_memory,
    ),
    "functional-dropout": (
        "a network that draws at random, in training",
        records.functional_dropout,
    ),
    "kept-state": ("what plain training kept, in private training", records.kept_state),
    "declared-size": (
        "the sizes that replies state, add-remove",
        messages.declared_size,
    ),
    "seeded": ("a number for ε where the noise is known", accounts.seeded),
    "oracle": ("orders beyond hello, prepare and train, and for sums", messages.oracle),
    "fields": ("fields of replies of two neighbours", messages.fields),
    "odd-images": (
        "an odd file in a folder of images, on others",
        odd_records("images"),
    ),
    "odd-arrays": ("an odd row of an array, on others", odd_records("npy")),
    "odd-lines": ("an odd line of a table, on others", odd_records("csv")),
    "odd-parquet": ("an odd row of a .parquet, on others", odd_records("parquet")),
    "odd-datasets": ("an odd row of a dataset, on others", odd_records("huggingface")),
    "new-label": (
        "a label that is not declared, on those of others",
        records.new_label,
    ),
    "hello": ("a label that is not declared, in Hello", messages.hello),
    "drop-in-batchnorm": (
        "a network that normalises over the batch",
        messages.batch_norm,
    ),
    "lost-replies": ("the total that the server prints", accounts.lost_replies),
    "spare-clients": ("the total, beside spare clients", accounts.spare_clients),
    "rounds-raised": ("the owner's total, by more rounds", accounts.rounds_raised),
    "questions": ("the owner's total, by asking again", accounts.repeated_requests),
    "wrong-size": ("the owner's total, by a false size", accounts.wrong_size),
    "half-way": (
        "the total that the client reports, after a failure",
        accounts.failed_release,
    ),
    "old-copy": ("the owner's total, by an old account", accounts.old_account),
    "reported": ("the total that the client reports", accounts.reported_total),
    "many-names": ("the owner's total, by names", accounts.many_names),
    "errors": ("a record in the text of an exception", messages.errors),
    "printed": ("ε as statements and tables print it", accounts.rounded_down),
    "person": ("all records of a person, on scores", records.person),
    "person-training": (
        "all records of a person, on training",
        records.person_training,
    ),
    "noise-scores": ("noise on class sums, replace-one", records.exchanged),
    "noise-mean": ("noise on a mean of φ, add-remove", records.added),
    "noise-drop-in": ("noise of a drop-in's release", messages.dropin_noise),
    "noise-training": ("noise on gradients", records.trained),
    "canaries": ("who took part in private training", records.canaries),
}
# an account syncs to disk before each answer; in memory that costs nothing
MEMORY = Path("/dev/shm")


def audit_client(
    audit: AuditConfig | None = None,
    only: Collection[str] = (),
    on_progress: OnProgress = no_progress,
) -> Iterator[AttackResult]:
    """Attack the real client handlers, and yield the result of each attack as soon as
    it is over.

    Args:
        audit: The claimed ε and δ, and how many replies to draw from each neighbouring
            data set.
        only: Names of the attacks to run; by default all of `ATTACKS`.
        on_progress: Called with a `WorkProgress` before each attack.

    Returns:
        An iterator over the results; an attack runs when its result is asked for.
    """
    yield from _audit(
        ATTACKS, lambda name: attack(name, audit or AuditConfig()), only, on_progress
    )


def audit_site(
    config: Config, only: Collection[str] = (), on_progress: OnProgress = no_progress
) -> Iterator[AttackResult]:
    """Attack a site's own settings, with synthetic records in the format of its source.

    Args:
        config: The site's settings, as its `site.toml` has them.
        only: Names of the attacks to run; by default all of `OWN_ATTACKS`.
        on_progress: Called with a `WorkProgress` before each attack.

    Returns:
        An iterator over the results; an attack runs when its result is asked for.
    """

    def attack_own(name: str) -> AttackResult:
        attacked, run = OWN_ATTACKS[name]
        return _attempt(name, attacked, lambda folder: run(OwnSite.of(config), folder))

    yield from _audit(OWN_ATTACKS, attack_own, only, on_progress)


def attack(name: str, audit: AuditConfig) -> AttackResult:
    """Run one of `ATTACKS`."""
    attacked, run = ATTACKS[name]
    return _attempt(name, attacked, lambda folder: run(folder, audit))


def _audit(
    known: Collection[str],
    attack: Callable[[str], AttackResult],
    only: Collection[str],
    on_progress: OnProgress,
) -> Iterator[AttackResult]:
    for name in only:
        if name not in known:
            raise unknown_name("attack", name, known)
    names = only or known
    for number, name in enumerate(names, 1):
        on_progress(WorkProgress("attacks", number, len(names), name))
        yield attack(name)


def _attempt(
    name: str, attacked: str, run: Callable[[Path], AttackResult]
) -> AttackResult:
    """Run an attack in a temporary folder, with the sites' logs silenced."""
    where = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="fedaux-audit-", dir=where) as folder,
        _silent(),
    ):
        try:
            result = run(Path(folder))
        except AttackSkipped as reason:
            result = AttackResult(0.0, 0.0, str(reason), skipped=True)
    return replace(result, name=name, attacked=attacked)


@contextmanager
def _silent() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)

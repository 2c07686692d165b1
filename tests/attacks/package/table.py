"""All attacks on the package, each run against sites of its own."""

from __future__ import annotations

from dataclasses import replace

from attacks.package import accounts, messages, records
from attacks.package.bounds import Attack, AuditConfig
from fedaux.audit.result import AttackResult
from fedaux.audit.run import run_attack

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
    "noise-look": ("noise on counts of held-out records", records.looked),
    "noise-drop-in": ("noise of a drop-in's release", messages.dropin_noise),
    "noise-training": ("noise on gradients", records.trained),
    "canaries": ("who took part in private training", records.canaries),
}


def attack(name: str, audit: AuditConfig) -> AttackResult:
    """Run one of `ATTACKS`."""
    attacked, run = ATTACKS[name]
    result = run_attack(lambda folder: run(folder, audit))
    return replace(result, name=name, attacked=attacked)

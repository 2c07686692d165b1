"""Attacks on the noise itself: neighbours at the claimed distance, and canaries in a single run of training."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.audit.attack_result import FAILURE_PROBABILITY, AttackResult, AuditConfig, distinguish
from fedaux.audit.bounds import one_run_bound
from fedaux.audit.records import IDENTITY, gradient, head_order, opposite_scores, scores, training
from fedaux.audit.site import Server, Site, Vector, set_mlp, write_rows
from fedaux.config.prototype import PrototypeSpec

CANARIES = 400
LOUD = 1000.0  # a canary's feature: its gradient is clipped to norm 1, however large


def exchanged(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record of eight exchanged for its opposite in another class: sums and counts move by 2, as is claimed."""
    neighbours = {"one": ((1, 0), 0), "other": ((0, 1), 1)}
    data = [
        write_rows(folder / which, np.array([row, *[(1, 1)] * 7]), [label] + [0] * 7, ("a", "b"))
        for which, (row, label) in neighbours.items()
    ]
    draws = opposite_scores([Site.at(path, IDENTITY, **scores(audit)) for path in data])
    return distinguish(draws, audit.more_draws())


def added(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record more in a mean of φ, at a declared size."""
    settings = scores(audit, scorer="mean-embedding", adjacency="add-remove", declared_records=8)
    data = [write_rows(folder / f"{n}", np.array([(1, 0)] * n), [0] * n, ("a", "b")) for n in (7, 8)]
    draws = opposite_scores([Site.at(path, IDENTITY, **settings) for path in data])
    return distinguish(draws, audit.more_draws())


def trained(folder: Path, audit: AuditConfig) -> AttackResult:
    """One record more in a step of private training, with the largest gradient there is."""
    x = np.array([*[(1, 1)] * 3, (LOUD, 0)])
    data = [write_rows(folder / f"{n}", x[:n], [0] * n, ("a", "b")) for n in (3, 4)]
    sites = [Site.at(path, IDENTITY, **training(audit)) for path in data]
    order, direction = head_order(sites[0]), gradient(np.array([LOUD, 0.0]), np.zeros(2), 0)
    draws = [partial(site.noisy_sum, order) for site in sites]
    return distinguish(draws, audit.more_draws(), direction=direction)


def canaries(folder: Path, audit: AuditConfig) -> AttackResult:
    """One run of training in which each of many records takes part or not; each has a feature of its own.

    The auditor says of the fourth with the largest gradient that they took part, and of the fourth with the smallest
    that they did not.
    """
    audit = replace(audit, epsilon=min(1.0, audit.epsilon))  # with some hundred canaries, no more than 4 can be proven
    included = np.array([secrets.randbits(1) for _ in range(CANARIES)], bool)
    labels = np.arange(CANARIES) % 2
    data = write_rows(folder / "tossed", LOUD * np.eye(CANARIES)[included], labels[included], ("a", "b"))
    site = Site.at(data, PrototypeSpec.of("mlp", hidden=CANARIES, features=CANARIES, norm="none"), **training(audit))
    server = Server.against(site, (CANARIES,), 2)
    set_mlp(server.model, first=np.eye(CANARIES), second=np.eye(CANARIES))
    noisy_sum = site.noisy_sum(server.train(np.zeros(2 * CANARIES + 2)))
    right, guesses = _guess(noisy_sum, labels, included)
    bound = one_run_bound(CANARIES, guesses, right, audit.delta, 1 - FAILURE_PROBABILITY)
    detail = f"{right} of {guesses} guesses on {CANARIES} canaries are right"
    return AttackResult(audit.epsilon, bound, detail, draws=1)


def _guess(noisy_sum: Vector, labels: NDArray[Any], included: NDArray[np.bool_]) -> tuple[int, int]:
    """(right guesses, guesses): canary j moves the two weights of feature j apart, by the sign of its label."""
    weights = noisy_sum[: 2 * CANARIES].reshape(2, CANARIES)
    order, quarter = np.argsort((weights[1] - weights[0]) * (1 - 2 * labels)), CANARIES // 4
    return int(included[order[-quarter:]].sum() + (~included[order[:quarter]]).sum()), 2 * quarter

"""Attacks on the noise itself: neighbours at the claimed distance, and canaries in a single run of training."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.prototype import PrototypeSpec
from fedaux.deploy.audit.attack_result import FAILURE_PROBABILITY, AttackResult, AuditConfig, empirical_epsilon
from fedaux.deploy.audit.bounds import one_run_bound
from fedaux.deploy.audit.records import PASSING, gradient, passing, scores, scores_epsilon, sums_of, training
from fedaux.deploy.audit.site import Server, Site, Vector, set_mlp, write_rows

CANARIES = 400
LOUD = 1000.0  # a canary's feature: the gradient is shortened to norm 1, whatever it is


def with_more_draws(terms: AuditConfig) -> AuditConfig:
    """Half of the noise is missing: to see that takes more draws than to see a record moved by ten times its reach."""
    return replace(terms, draws=2 * terms.draws)


def exchanged(folder: Path, terms: AuditConfig) -> AttackResult:
    """One record of eight exchanged for its opposite in another class: sums and counts move by 2, as is claimed."""
    terms = with_more_draws(terms)
    kinds = {"one": ((1, 0), 0), "other": ((0, 1), 1)}
    data = [
        write_rows(folder / which, np.array([row, *[(1, 1)] * 7]), [label] + [0] * 7, ("a", "b"))
        for which, (row, label) in kinds.items()
    ]
    sites = [Site.at(one, PASSING, **scores(terms)) for one in data]
    bound = scores_epsilon(sites, terms)
    return AttackResult.of("noise-scores", "noise on class sums, replace-one", terms.epsilon, bound, terms.draws)


def added(folder: Path, terms: AuditConfig) -> AttackResult:
    """One record more in a mean of φ, at a declared size."""
    terms = with_more_draws(terms)
    settings = scores(terms, scorer="mean-embedding", adjacency="add-remove", declared_records=8)
    data = [write_rows(folder / f"{n}", np.array([(1, 0)] * n), [0] * n, ("a", "b")) for n in (7, 8)]
    sites = [Site.at(one, PASSING, **settings) for one in data]
    bound = scores_epsilon(sites, terms)
    return AttackResult.of("noise-mean", "noise on a mean of φ, add-remove", terms.epsilon, bound, terms.draws)


def trained(folder: Path, terms: AuditConfig) -> AttackResult:
    """One record more in a step of private training, with the largest gradient there is."""
    terms = with_more_draws(terms)
    x = np.array([*[(1, 1)] * 3, (LOUD, 0)])
    data = [write_rows(folder / f"{n}", x[:n], [0] * n, ("a", "b")) for n in (3, 4)]
    sites = [Site.at(one, PASSING, **training(terms)) for one in data]
    order, direction = passing(sites[0]).train(np.zeros(6)), gradient(np.array([LOUD, 0.0]), np.zeros(2), 0)
    bound = empirical_epsilon([sums_of(site, order) for site in sites], terms, direction)
    return AttackResult.of("noise-training", "noise on gradients", terms.epsilon, bound, terms.draws)


def canaries(folder: Path, terms: AuditConfig) -> AttackResult:
    """One run of training in which each of many records takes part or not; each has a feature of its own.

    The auditor says of the fourth with the largest gradient that they took part, and of the fourth with the smallest
    that they did not.
    """
    terms = replace(terms, epsilon=min(1.0, terms.epsilon))  # with some hundred canaries, no more than 4 can be proven
    toss = np.array([secrets.randbits(1) for _ in range(CANARIES)], bool)
    labels = np.arange(CANARIES) % 2
    data = write_rows(folder / "tossed", LOUD * np.eye(CANARIES)[toss], labels[toss], ("a", "b"))
    site = Site.at(data, PrototypeSpec.of("mlp", hidden=CANARIES, features=CANARIES, norm="none"), **training(terms))
    server = Server.against(site, (CANARIES,), 2)
    set_mlp(server.model, first=np.eye(CANARIES), second=np.eye(CANARIES))
    found = site.noisy_sum(server.train(np.zeros(2 * CANARIES + 2)))
    right, guesses = _right(found, labels, toss)
    bound = one_run_bound(CANARIES, guesses, right, terms.delta, 1 - FAILURE_PROBABILITY)
    detail = f"{right} of {guesses} guesses on {CANARIES} canaries are right"
    return AttackResult.of("canaries", "who took part in private training", terms.epsilon, bound, 1, detail)


def _right(found: Vector, labels: NDArray[Any], toss: NDArray[np.bool_]) -> tuple[int, int]:
    """(right guesses, guesses): canary j moves the two weights of feature j apart, by the sign of its label."""
    weights = found[: 2 * CANARIES].reshape(2, CANARIES)
    order, quarter = np.argsort((weights[1] - weights[0]) * (1 - 2 * labels)), CANARIES // 4
    return int(toss[order[-quarter:]].sum() + (~toss[order[:quarter]]).sum()), 2 * quarter

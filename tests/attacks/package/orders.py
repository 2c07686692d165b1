"""Settings of the sites that are attacked, orders to them, and what their replies
reveal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.package.bounds import AuditConfig, Vector, distinguish
from fedaux.audit.result import AttackResult
from fedaux.audit.site import SITE_NAME, AuditedSite, HostileServer
from fedaux.flower.federation import read_reply
from fedaux.messages import PrepareOrder, TrainOrder, Update
from helpers.audited_sites import set_mlp

# declared records: gradients are divided by it, which lets Adam's first step be
# inverted
MANY = 10**6
ADAM_EPSILON = 1e-8


def scores(audit: AuditConfig, **more: Any) -> dict[str, Any]:
    """Settings of a site that releases scores."""
    return {"privacy": {"epsilon": audit.epsilon, "delta": audit.delta, **more}}


def training(audit: AuditConfig, **more: Any) -> dict[str, Any]:
    """Settings of a site that trains heads for one round, in one step on all records,
    under add-remove.
    """
    privacy = {
        "epsilon": audit.epsilon,
        "epsilon_total": audit.epsilon,
        "delta": audit.delta,
        "train_rounds": 1,
        "private_training": True,
        "sample_rate": 1.0,
        "adjacency": "add-remove",
        "declared_records": MANY,
    }
    one_step = {
        "method": "fedavg",
        "head_only": True,
        "rounds": 1,
        "local": {"epochs": 1},
    }
    return {**one_step, "privacy": {**privacy, **more}}


def values(site: AuditedSite, order: PrepareOrder) -> Vector:
    """A release by a client with an empty account, as a vector of steps."""
    site.forget()
    return np.asarray(site.release(order).arrays["values"], np.float64)


def noisy_sum(site: AuditedSite, order: TrainOrder) -> Vector:
    """The noisy sum of gradients behind one step of private training, in units of the
    clipping norm.

    Adam's first step is lr·g/(|g| + 10⁻⁸) on each coordinate, which can be inverted.
    """
    site.forget()
    update = read_reply(Update, site.send(order))
    before = order.weights["parameters"].astype(np.float64)
    step = (before - update.weights["parameters"]) / order.lr
    step = np.clip(step, -1 + 2**-24, 1 - 2**-24)
    gradient = ADAM_EPSILON * step / (1 - np.abs(step))
    return np.asarray(gradient * update.rate * update.records)


def tell_apart(
    sites: Sequence[AuditedSite],
    order: PrepareOrder | TrainOrder,
    audit: AuditConfig,
    detail: str = "",
    direction: Vector | None = None,
) -> AttackResult:
    """`distinguish` two neighbours by their replies to an order: releases, or sums
    behind a step of training.
    """
    draws = [
        partial(values, site, order)
        if isinstance(order, PrepareOrder)
        else partial(noisy_sum, site, order)
        for site in sites
    ]
    return distinguish(draws, audit, detail, direction)


def identity_server(site: AuditedSite) -> HostileServer:
    """Its network returns two positive numbers as they are."""
    server = HostileServer.against(site, (2,), 2)
    set_mlp(server.model, first=np.eye(2), second=np.eye(2))
    return server


def score_order(
    site: AuditedSite, scale: float = 1.0, client: str = SITE_NAME
) -> PrepareOrder:
    """Asks for scores under a map that has the records (1, 0) and (0, scale) at
    opposite φ.
    """
    server = identity_server(site)
    return server.prepare(server.map(column=np.array([1.0, -scale])), client)


def head_order(site: AuditedSite, round_: int = 1) -> TrainOrder:
    """Asks for a step of training from a head of zeros, with records as features."""
    return replace(identity_server(site).train(np.zeros(6)), round=round_)


def gradient(h: NDArray[Any], logits: Vector, label: int) -> Vector:
    """A record's clipped gradient by the head (W, b), flattened, as an attacker who
    knows the record computes it.
    """
    odds = np.exp(logits - logits.max())
    error = odds / odds.sum() - np.eye(len(logits))[label]
    flat = np.append(np.outer(error, h).ravel(), error)
    return np.asarray(flat / max(1.0, float(np.linalg.norm(flat))))

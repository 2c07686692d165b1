"""An attack on what an owner's approval covers: a hostile server has one plan approved,
and asks for more than it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.audit.looks import look_order
from fedaux.audit.own_site import OwnSite
from fedaux.audit.result import AttackResult, AttackSkipped
from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.audit.training import training_order
from fedaux.client.approvals import ApprovalLog
from fedaux.config.sends import MODELS, NOISY_COUNTS, NOISY_SUMS, SUMS
from fedaux.messages import (
    DataOrder,
    LookOrder,
    PlanOrder,
    PrepareOrder,
    SumsOrder,
    Tallies,
    Tally,
    TrainOrder,
    plan_of,
)

MANY_RELEASES = 100  # times the budget of one
# rewrites eight lines above on a terminal
ESCAPE = "\x1b[8A\x1b[1Gleaves = nothing\x1b[K"


def own_approvals(own: OwnSite, folder: Path) -> AttackResult:
    """Have one plan approved, and ask for more than it says."""
    if own.config.federation.approval != "ask":
        raise AttackSkipped("this site's owner is not asked (federation.approval)")
    asking = own.with_federation(secure=False, standing=(), sends=own.sends)
    asking = _with_a_large_budget(asking)
    site = asking.synthetic_site(folder)
    orders = approvable(asking.server_against(site))
    plan = plan_of("run", own.config.method, 1, False, orders)
    problems = list(before_approval(site, orders, plan.to_json()))
    ApprovalLog(site.vault).decide(plan.hash, "approved", "owner")
    sent = 0
    for order in orders:
        kind = type(order).__name__
        approved = replace(order, plan=plan.hash)
        sent += 1
        if site.send(approved).has_error():
            problems.append(f"{kind}: it is refused, though approved")
        for name, changed in beyond(approved):
            sent += 1
            if not site.send(changed).has_error():
                problems.append(f"{kind} with another {name} is answered")
    if problems:
        return AttackResult.exact(True, "; ".join(problems))
    detail = f"{sent} orders: what the approved plan says is answered, and nothing else"
    return AttackResult.exact(False, detail)


def _with_a_large_budget(own: OwnSite) -> OwnSite:
    """So that a budget which is used up does not hide what was approved too broadly."""
    privacy = own.config.privacy
    epsilon_total = MANY_RELEASES * privacy.epsilon_budget
    privacy = replace(privacy, epsilon_total=epsilon_total)
    return replace(own, config=replace(own.config, privacy=privacy))


def approvable(server: HostileServer) -> list[DataOrder]:
    """Return an order of each kind that the site's settings allow."""
    sends = server.config.federation.sends
    orders: list[DataOrder] = []
    if NOISY_SUMS in sends:
        column = np.eye(server.width)[0]
        orders.append(server.prepare(server.map(column=column)))
    orders += [server.sums(kind) for kind, word in SUMS.items() if word in sends]
    if MODELS in sends:
        orders.append(training_order(server))
    if NOISY_COUNTS in sends:
        orders.append(look_order(server))
    return orders


def before_approval(
    site: AuditedSite, orders: list[DataOrder], plan: str
) -> Iterator[str]:
    """Yield what goes wrong before an owner has decided: answers, or plans that should
    not have been written down.
    """
    log = ApprovalLog(site.vault)
    name = site.names[0]
    for what, bad_plan in bad_plans(plan):
        refused = site.send(PlanOrder(name, bad_plan)).has_error()
        if not refused or log.entries():
            yield f"{what} is written down"
    if site.send(PlanOrder(name, plan)).has_error():
        yield "an honest plan is refused"
    plan_hash = PlanOrder("", plan).plan_hash
    for order in orders:
        kind = type(order).__name__
        if not site.send(order).has_error():
            yield f"{kind} without a plan is answered"
        if not site.send(replace(order, plan=plan_hash)).has_error():
            yield f"{kind} before it is approved is answered"


def bad_plans(plan: str) -> Iterator[tuple[str, str]]:
    """Yield plans that no site should show its owner, and what is wrong with them."""
    content = json.loads(plan)
    escaping = {**content, "run": ESCAPE}
    yield "a plan with escape sequences", json.dumps(escaping)
    unlisted = {"kind": "sums", "at_most": 1, "facts": {"sends": "?"}}
    yield (
        "a plan for what may not leave",
        json.dumps({**content, "asks": [unlisted]}),
    )
    unknown = {"kind": "everything", "at_most": 1, "facts": {}}
    yield "a plan of another kind", json.dumps({**content, "asks": [unknown]})


def beyond(order: DataOrder) -> Iterator[tuple[str, DataOrder]]:
    """Yield orders under the same approval that would reveal something else."""
    if order.h0:
        yield "classification of what is sent", replace(order, h0="0" * 64)
    if isinstance(order, TrainOrder):
        yield "batch size", replace(order, batch_size=order.batch_size + 1)
        yield "run", replace(order, run="another")
    if isinstance(order, LookOrder):
        classes = Tallies({"classes": Tally("classes")})
        yield (
            "division into bins",
            replace(order, tallies=classes.to_json(), size=classes.size(order.classes)),
        )
        opposite = {name: -array for name, array in order.weights.items()}
        yield "model", replace(order, weights=opposite)
        yield "run", replace(order, run="another")
    if isinstance(order, SumsOrder):
        statistics = {
            "mean": np.zeros(order.width, np.float32),
            "deviation": np.full(order.width, 0.01, np.float32),
        }
        yield "standardisation", replace(order, standardisation=statistics)
    if isinstance(order, PrepareOrder):
        public = dict(order.public)
        for name, array in order.public.items():
            if name != "split":
                public[name] = array + np.float32(0.001)
        yield "public map", replace(order, public=public)

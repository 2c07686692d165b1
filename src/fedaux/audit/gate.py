"""An attack on what a site answers: every kind of order against what its owner lets
leave.

It plays a hostile server against the real handlers under an owner's own settings.
Whether an answer is a violation is read off the answer, not off the settings that the
gate goes by.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.audit.looks import every_look, problem_of_counts
from fedaux.audit.own_site import OwnSite
from fedaux.audit.result import AttackResult, AttackSkipped
from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.audit.training import by_method, whole_network
from fedaux.config.methods import METHODS
from fedaux.config.sends import (
    MODELS,
    NOISY_COUNTS,
    NOISY_MODELS,
    NOISY_SUMS,
    SUMS,
    needed_by,
    word_for_sums,
)
from fedaux.flower.federation import read_reply
from fedaux.messages import (
    Counts,
    LookOrder,
    Order,
    Release,
    SumOrder,
    SumReply,
    Sums,
    SumsOrder,
    SumTerms,
    Update,
    answer_type,
    identity,
)
from fedaux.messages.orders import MAX_RANDOM_FEATURES
from fedaux.privacy.site_account import SiteAccount

# of a secure sum, after its first
LATER_STEPS = ("shares", "masked", "survivors", "unmask")


def own_gate(own: OwnSite, folder: Path) -> AttackResult:
    """Send every kind of order, in every variant that a server could think of, and read
    what is answered.
    """
    sends = own.config.federation.sends
    if not sends:
        raise AttackSkipped(
            "site.toml does not list what may leave, so every order is refused. Write "
            f"sends = {json.dumps(needed_by(own.config))} in [federation]."
        )
    site = own.with_federation(approval="none").synthetic_site(folder)
    server = own.server_against(site)
    problems = []
    sent = 0
    answered = 0
    for name, order in every_order(server, own):
        sent += 1
        reply = site.send(order)
        if reply.has_error():
            continue
        answered += 1
        answer = read_reply(answer_type(order), reply)
        problem = undisclosed(answer, order, site, sends)
        if problem:
            problems.append(f"{name}: {problem}")
    if problems:
        return AttackResult.exact(True, "; ".join(problems))
    words = ", ".join(sends)
    detail = f"of {sent} orders {answered} were answered, by nothing but {words}"
    return AttackResult.exact(False, detail)


def every_order(server: HostileServer, own: OwnSite) -> Iterator[tuple[str, Order]]:
    """Orders of every kind: all scorers' releases, looks, all sums, training by every
    method, later steps of sums.
    """
    column = np.eye(server.width)[0]
    yield "a release", server.prepare(server.map(column=column))
    yield from every_look(server)
    for sends in SUMS:
        yield f"{sends} of features", server.sums(sends)
    large = replace(
        server.sums("moments"),
        random_features=MAX_RANDOM_FEATURES,
        width=MAX_RANDOM_FEATURES,
    )
    yield "sums that would fill the memory", large
    zeros = np.zeros((server.width + 1) * len(own.classes))
    head = server.train(zeros, lr=0.1)
    network = whole_network(head, server)
    for method in METHODS:
        yield f"a head by {method}", by_method(method, head)
        yield f"a network by {method}", by_method(method, network)
    terms = SumTerms("run", identity(network), 0, ["site", "b", "c"], 3, 1, 0.0, 10)
    terms_json = terms.to_json()
    yield "a secure sum of one site's own", replace(network, sum=terms_json)
    for step in LATER_STEPS:
        yield f"{step} of a sum that was not begun", SumOrder("site", terms_json, step)


def undisclosed(
    reply: object, order: Order, site: AuditedSite, sends: tuple[str, ...]
) -> str:
    """Return what a reply reveals beyond what may leave, or "" if it does not."""
    if isinstance(reply, Release):
        if NOISY_SUMS in sends and is_entered(site):
            return ""
        return "it releases, and may not or without an entry"
    if isinstance(reply, Counts) and isinstance(order, LookOrder):
        if NOISY_COUNTS in sends and is_entered(site):
            return problem_of_counts(reply, order, site.config.privacy)
        return "it counts held-out records, and may not or without an entry"
    if isinstance(reply, Sums) and isinstance(order, SumsOrder):
        word = word_for_sums(order.sends, sends)
        return "" if word in sends else f"it sends {word} without noise"
    if isinstance(reply, Update) and reply.noise == 0:
        return "" if MODELS in sends else "it sends a model without noise"
    if isinstance(reply, Update):
        if NOISY_MODELS in sends and is_entered(site):
            return ""
        return "it trains, and may not or without an entry"
    if isinstance(reply, SumReply) and not site.config.federation.secure:
        return "it takes part in a secure sum"
    return ""


def is_entered(site: AuditedSite) -> bool:
    """Whether the account has an entry, and its total is within the owner's."""
    privacy = site.config.privacy
    account = SiteAccount.read(site.vault, privacy.delta)
    limit = privacy.epsilon_budget * (1 + 1e-9)
    return bool(account.entries) and account.epsilon <= limit

"""Attacks on the layer around the mechanism: which orders a site answers, what its
secure sums agree on, and what an owner's approval covers.

They play a hostile server, and for secure sums a site that helps it, against the real
handlers under an owner's own settings. Whether an answer is a violation is read off the
answer, not off the settings that the gate goes by.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedaux.audit.attack import AttackResult, AttackSkipped
from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.client.approvals import ApprovalLog
from fedaux.config.methods import METHODS
from fedaux.config.sends import (
    MODELS,
    NOISY_MODELS,
    NOISY_SUMS,
    SUMS,
    needed_by,
    word_for_sums,
)
from fedaux.core.arrays import Arrays
from fedaux.core.rng import numpy_stream
from fedaux.flower.federation import read_reply
from fedaux.messages import (
    DataOrder,
    Order,
    PlanOrder,
    PrepareOrder,
    Release,
    SumOrder,
    SumReply,
    Sums,
    SumsOrder,
    SumTerms,
    TrainOrder,
    Update,
    answer_type,
    identity,
    plan_of,
)
from fedaux.messages.orders import MAX_RANDOM_FEATURES
from fedaux.messages.replies import sums_shapes
from fedaux.methods.hooks import hooks_of
from fedaux.methods.summed_update import update_shapes, vector_length
from fedaux.models import flatten_state
from fedaux.privacy.account import SiteAccount
from fedaux.privacy.curve25519 import PRIME, SIGN_BIT, public_key
from fedaux.privacy.roster import load_signing_key, make_signing_key, write_roster
from fedaux.privacy.secure_sum import Keys, agreed_threshold, honest_sites, sum_settings
from fedaux.scoring.pooled import shared_noise_scale
from fedaux.scoring.registry import make_scorer

if TYPE_CHECKING:
    from fedaux.audit.own_site import OwnSite

NAMES = ("athens", "bern", "cairo")
# rewrites eight lines above on a terminal
MANY_RELEASES = 100  # times the budget of one
ESCAPE = "\x1b[8A\x1b[1Gleaves = nothing\x1b[K"


def own_gate(own: OwnSite, folder: Path) -> AttackResult:
    """Send every kind of order, in every variant that a server could think of, and read
    what is answered.
    """
    sends = own.config.federation.sends
    if not sends:
        raise AttackSkipped(
            "site.toml does not list what may leave, so every order is refused; write "
            f"sends = {json.dumps(needed_by(own.config))} in [federation]"
        )
    federation = replace(own.config.federation, approval="none")
    site = replace(own, config=replace(own.config, federation=federation)).usual_site(
        folder / "site", "site"
    )
    server = HostileServer.against(site, own.records(site).shape, len(own.classes))
    problems = []
    sent = 0
    answered = 0
    for name, order in every_order(server, own):
        sent += 1
        reply = site.send(order)
        if not reply.has_error():
            answered += 1
            problem = undisclosed(
                read_reply(answer_type(order), reply), order, site, sends
            )
            problems += [f"{name}: {problem}"] if problem else []
    detail = (
        "; ".join(problems)
        or f"of {sent} orders {answered} were answered, by nothing but {', '.join(sends)}"
    )
    return AttackResult.exact(bool(problems), detail)


def every_order(server: HostileServer, own: OwnSite) -> Iterator[tuple[str, Order]]:
    """Orders of every kind: all scorers' releases, all sums, training by every method,
    later steps of sums.
    """
    column = np.eye(server.width)[0]
    yield "a release", server.prepare(server.map(column=column))
    for sends in SUMS:
        yield f"{sends} of features", server.sums(sends)
    large = replace(
        server.sums("moments"),
        random_features=MAX_RANDOM_FEATURES,
        width=MAX_RANDOM_FEATURES,
    )
    yield "sums that would fill the memory", large
    head = server.train(np.zeros((server.width + 1) * len(own.classes)), lr=0.1)
    whole = whole_network(head, server)
    for method in METHODS:
        for what, order in (("a head", head), ("a network", whole)):
            trained = replace(
                order,
                method=method,
                method_options="{}",
                broadcast=broadcast_of(method, order),
            )
            yield f"{what} by {method}", trained
    terms = SumTerms("run", identity(whole), 0, ["site", "b", "c"], 3, 1, 0.0, 10)
    yield "a secure sum of one site's own", replace(whole, sum=terms.to_json())
    for step in ("shares", "masked", "survivors", "unmask"):
        yield (
            f"{step} of a sum that was not begun",
            SumOrder("site", terms.to_json(), step),
        )


def whole_network(order: TrainOrder, server: HostileServer) -> TrainOrder:
    """Return an order to train the server's network instead of a head on its features."""
    parameters = flatten_state(server.model)["parameters"]
    return replace(order, weights={"parameters": parameters}, h0="", extractor={})


def training_order(server: HostileServer) -> TrainOrder:
    """Return an order to train as much of the network as the site's settings say."""
    count = (server.width + 1) * server.classes
    start = numpy_stream(0, "audit").normal(size=count)
    optimizer = server.config.local_training.optimizer
    order = replace(server.train(start), run="run", optimizer=optimizer)
    if not server.config.head_only:
        order = whole_network(order, server)
    if order.method not in METHODS:
        return order
    return replace(order, broadcast=broadcast_of(order.method, order))


def broadcast_of(method: str, order: TrainOrder) -> Arrays:
    """Return what a method sends beside the model at the start."""
    if METHODS[method].analytic:
        return {}
    hooks = hooks_of(method, {})
    return hooks.broadcast(
        hooks.server_state(np.zeros(order.weights["parameters"].shape, np.float32))
    )


def undisclosed(
    reply: object, order: Order, site: AuditedSite, sends: tuple[str, ...]
) -> str:
    """Return what a reply reveals beyond what may leave; "" if it does not."""
    if isinstance(reply, Release):
        return (
            ""
            if NOISY_SUMS in sends and is_entered(site)
            else "it releases, and may not or without an entry"
        )
    if isinstance(reply, Sums) and isinstance(order, SumsOrder):
        word = word_for_sums(order.sends, sends)
        return "" if word in sends else f"it sends {word} without noise"
    if isinstance(reply, Update) and reply.noise == 0:
        return "" if MODELS in sends else "it sends a model without noise"
    if isinstance(reply, Update):
        return (
            ""
            if NOISY_MODELS in sends and is_entered(site)
            else "it trains, and may not or without an entry"
        )
    if isinstance(reply, SumReply) and not site.config.federation.secure:
        return "it takes part in a secure sum"
    return ""


def is_entered(site: AuditedSite) -> bool:
    """Whether the account has an entry, and its total is within the owner's."""
    privacy = site.config.privacy
    account = SiteAccount.read(site.vault, privacy.delta)
    return bool(account.entries) and account.epsilon <= privacy.epsilon_budget * (
        1 + 1e-9
    )


def own_sums(own: OwnSite, folder: Path) -> AttackResult:
    """Ask the sites of one secure sum different things, and let one of them copy the
    key of another.
    """
    if not own.config.federation.secure:
        raise AttackSkipped(
            "this site takes part in no secure sums (federation.secure)"
        )
    sums = SecureSites.at(own, folder)
    problems = []
    tried = 0
    for order in sums.orders():
        noun = type(order).__name__
        for what, other in other_orders(order):
            tried += 2
            if sums.accepts_unequal(order, other, same_terms=True):
                problems.append(
                    f"{noun}: a site keeps an order that the terms are not for ({what})"
                )
            if sums.accepts_unequal(order, other, same_terms=False):
                problems.append(
                    f"{noun}: sites that were asked different things are in one sum "
                    f"({what})"
                )
        for what in COPIES:
            tried += 1
            if sums.accepts_copy(order, what):
                problems.append(f"{noun}: a key that was copied ({what}) is taken")
    detail = (
        "; ".join(problems)
        or f"{tried} sums of {len(NAMES)} sites with unequal orders or copied keys are refused"
    )
    return AttackResult.exact(bool(problems), detail)


def other_orders(order: DataOrder) -> Iterator[tuple[str, DataOrder]]:
    """Orders that would make the answers of all other sites known, or harmless to a
    server.
    """
    if isinstance(order, TrainOrder):
        idle = {name: np.zeros_like(array) for name, array in order.weights.items()}
        yield "a learning rate of nothing", replace(order, lr=1e-30)
        yield "other weights", replace(order, weights=idle)
        yield "another round", replace(order, round=order.round + 1)
    elif isinstance(order, SumsOrder):
        flat = {
            "mean": np.zeros(order.width, np.float32),
            "deviation": np.full(order.width, 3e38, np.float32),
        }
        yield "features divided by 3e38", replace(order, standardisation=flat)
    else:
        yield (
            "a map of zeros",
            replace(
                order,
                public={**order.public, "basis": np.zeros_like(order.public["basis"])},
            ),
        )


def flipped_sign(key: bytes) -> bytes:
    """The key of the negative point: X25519 knows no signs, so secrets are the same."""
    return (int.from_bytes(key, "little") ^ SIGN_BIT).to_bytes(32, "little")


def with_small_order(key: bytes) -> bytes:
    """The key plus the point of order two, (0, −1): X25519 multiplies it away."""
    y = int.from_bytes(key, "little") & ~SIGN_BIT
    return (PRIME - y).to_bytes(32, "little")


COPIES = {
    "as it is": lambda key: key,
    "with the other sign": flipped_sign,
    "plus a point of small order": with_small_order,
}


@dataclass(frozen=True)
class SecureSites:
    """Three sites with an owner's settings, keys of their own and a common roster; the
    last one helps the server.
    """

    sites: dict[str, AuditedSite]
    roster: Mapping[str, bytes]
    server: HostileServer

    @classmethod
    def at(cls, own: OwnSite, folder: Path) -> SecureSites:
        federation = replace(own.config.federation, approval="none", sends=own.sends)
        settings = replace(own, config=replace(own.config, federation=federation))
        sites = {name: settings.usual_site(folder / name, name) for name in NAMES}
        roster = {name: make_signing_key(site.vault) for name, site in sites.items()}
        for site in sites.values():
            write_roster(site.vault / "roster.json", roster)
        first = sites[NAMES[0]]
        return cls(
            sites,
            roster,
            HostileServer.against(first, own.records(first).shape, len(own.classes)),
        )

    def orders(self) -> list[DataOrder]:
        """Return an order of each kind that these sites answer."""
        server = self.server
        config = server.config
        sends = config.federation.sends
        orders: list[DataOrder] = []
        if NOISY_SUMS in sends:
            orders.append(server.prepare(server.map(column=np.eye(server.width)[0])))
        orders += [
            server.sums(kind)
            for kind, word in SUMS.items()
            if word in sends and kind != "mixtures"
        ]
        if MODELS in sends:
            orders.append(training_order(server))
        return orders

    def terms(self, order: DataOrder) -> SumTerms:
        federation = self.server.config.federation
        threshold = agreed_threshold(len(NAMES), federation.threshold)
        honest = honest_sites(threshold, len(NAMES), federation.colluders)
        length, scale = self._length_and_scale(order, honest)
        return SumTerms(
            "run",
            identity(order),
            0,
            list(NAMES),
            threshold,
            federation.colluders,
            scale,
            length,
        )

    def _length_and_scale(self, order: DataOrder, honest: int) -> tuple[int, float]:
        privacy = self.server.config.privacy
        if isinstance(order, PrepareOrder):
            scorer = make_scorer(privacy, order.classes)
            return order.size, shared_noise_scale(scorer, order.public, privacy, honest)
        if isinstance(order, SumsOrder):
            return vector_length(
                sums_shapes(order.classes, order.width, order.sends)
            ), 0.0
        return vector_length(
            update_shapes(
                order, hooks_of(order.method, json.loads(order.method_options))
            )
        ), 0.0

    def ask(self, order: DataOrder | SumOrder) -> dict[str, bytes] | None:
        """Return what a site answers; None if it refuses."""
        reply = self.sites[order.client].send(order)
        if reply.has_error():
            return None
        arrays = read_reply(SumReply, reply).arrays
        return {name: array.tobytes() for name, array in arrays.items()}

    def forget(self) -> None:
        """Let all sites forget the sums so far; their keys and rosters stay."""
        for site in self.sites.values():
            for path in (site.vault / "sums").glob("*-*"):
                path.unlink()

    def accepts_unequal(
        self, order: DataOrder, other: DataOrder, same_terms: bool
    ) -> bool:
        """Whether a sum goes on in which the first site is asked one thing, and the
        others another.

        With the same terms for all, a site would have to keep an order that they are
        not for. With terms for each order, sites would have to take keys that were
        signed for another sum.
        """
        self.forget()
        target = NAMES[0]
        keys = {}
        for name in NAMES:
            asked = order if name == target else other
            terms = self.terms(order if same_terms else asked)
            answer = self.ask(replace(asked, client=name, sum=terms.to_json()))
            if answer is None:
                return False
            keys[name] = np.frombuffer(answer[name], np.uint8)
        shares = self.ask(SumOrder(target, self.terms(order).to_json(), "shares", keys))
        return shares is not None

    def accepts_copy(self, order: DataOrder, how: str) -> bool:
        """Whether a site shares its secrets in a sum in which the last site sends the
        first one's key as its own.
        """
        self.forget()
        terms = self.terms(order)
        text = terms.to_json()
        keys = {}
        for name in NAMES[:-1]:
            answer = self.ask(replace(order, client=name, sum=text))
            assert answer is not None, "an honest order is answered"
            keys[name] = answer[name]
        copied = COPIES[how](Keys.from_bytes(NAMES[0], keys[NAMES[0]]).mask_key)
        keys[NAMES[-1]] = self._forged(terms, copied).to_bytes()
        arrays = {name: np.frombuffer(key, np.uint8) for name, key in keys.items()}
        return self.ask(SumOrder(NAMES[1], text, "shares", arrays)) is not None

    def _forged(self, terms: SumTerms, copied: bytes) -> Keys:
        """Return the helper's keys: the copied one, whose proof it cannot make, and one
        of its own.
        """
        name = NAMES[-1]
        share = secrets.token_bytes(32)
        signing_key = load_signing_key(self.sites[name].vault)
        unsigned = Keys(name, copied, public_key(share), b"", b"", b"")
        message = unsigned.signed(sum_settings(terms, self.roster))
        own_proof = Ed25519PrivateKey.from_private_bytes(share).sign(message)
        return replace(
            unsigned,
            mask_proof=own_proof,
            share_proof=own_proof,
            signature=signing_key.sign(message),
        )


def own_approvals(own: OwnSite, folder: Path) -> AttackResult:
    """Have one plan approved, and ask for more than it says."""
    if own.config.federation.approval != "ask":
        raise AttackSkipped("this site's owner is not asked (federation.approval)")
    federation = replace(
        own.config.federation, secure=False, standing=(), sends=own.sends
    )
    # so that a budget which is used up does not hide what was approved too broadly
    privacy = own.config.privacy
    privacy = replace(privacy, epsilon_total=MANY_RELEASES * privacy.epsilon_budget)
    config = replace(own.config, federation=federation, privacy=privacy)
    settings = replace(own, config=config)
    site = settings.usual_site(folder / "site", "site")
    server = HostileServer.against(
        site, settings.records(site).shape, len(settings.classes)
    )
    orders = approvable(server)
    plan = plan_of("run", own.config.method, 1, False, orders)
    problems = list(before_approval(site, orders, plan.to_json()))
    ApprovalLog(site.vault).decide(plan.hash, "approved", "owner")
    tried = len(orders)
    for order in orders:
        approved = replace(order, plan=plan.hash)
        if site.send(approved).has_error():
            problems.append(f"{type(order).__name__}: it is refused, though approved")
        for name, changed in beyond(approved):
            tried += 1
            if not site.send(changed).has_error():
                problems.append(
                    f"{type(order).__name__} with another {name} is answered"
                )
    detail = (
        "; ".join(problems)
        or f"{tried} orders: what the approved plan says is answered, and nothing else"
    )
    return AttackResult.exact(bool(problems), detail)


def approvable(server: HostileServer) -> list[DataOrder]:
    """Return an order of each kind that the site's settings allow."""
    sends = server.config.federation.sends
    orders: list[DataOrder] = []
    if NOISY_SUMS in sends:
        orders.append(server.prepare(server.map(column=np.eye(server.width)[0])))
    orders += [server.sums(kind) for kind, word in SUMS.items() if word in sends]
    if MODELS in sends:
        orders.append(training_order(server))
    return orders


def before_approval(
    site: AuditedSite, orders: list[DataOrder], plan: str
) -> Iterator[str]:
    """Yield what goes wrong before an owner has decided: answers, or plans that should
    not have been written down.
    """
    log = ApprovalLog(site.vault)
    name = site.names[0]
    content = json.loads(plan)
    bad = {
        "a plan with escape sequences": {**content, "run": ESCAPE},
        "a plan for what may not leave": {
            **content,
            "asks": [{"kind": "sums", "at_most": 1, "facts": {"sends": "?"}}],
        },
        "a plan of another kind": {
            **content,
            "asks": [{"kind": "everything", "at_most": 1, "facts": {}}],
        },
    }
    for what, text in bad.items():
        refused = site.send(PlanOrder(name, json.dumps(text))).has_error()
        if not refused or log.entries():
            yield f"{what} is written down"
    reply = site.send(PlanOrder(name, plan))
    if reply.has_error():
        yield "an honest plan is refused"
    for order in orders:
        for what, asked in (
            ("without a plan", order),
            ("before it is approved", replace(order, plan=_hash(plan))),
        ):
            if not site.send(asked).has_error():
                yield f"{type(order).__name__} {what} is answered"


def _hash(plan: str) -> str:
    return PlanOrder("", plan).plan_hash


def beyond(order: DataOrder) -> Iterator[tuple[str, Any]]:
    """Yield orders under the same approval that would reveal something else."""
    if order.h0:
        yield "classification of what is sent", replace(order, h0="0" * 64)
    if isinstance(order, TrainOrder):
        yield "batch size", replace(order, batch_size=order.batch_size + 1)
        yield "run", replace(order, run="another")
    if isinstance(order, SumsOrder):
        other = {
            "mean": np.zeros(order.width, np.float32),
            "deviation": np.full(order.width, 0.01, np.float32),
        }
        yield "standardisation", replace(order, standardisation=other)
    if isinstance(order, PrepareOrder):
        moved = {
            name: array + np.float32(0.001)
            for name, array in order.public.items()
            if name != "split"
        }
        yield "public map", replace(order, public={**order.public, **moved})

"""An attack on secure sums: sites that are asked different things, or of which one
copies another's key.

It plays a hostile server, and a site that helps it, against the real handlers of three
sites under an owner's own settings.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedaux.audit.looks import look_order
from fedaux.audit.own_site import OwnSite
from fedaux.audit.result import AttackResult, AttackSkipped
from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.audit.training import training_order
from fedaux.config.sends import MODELS, NOISY_COUNTS, NOISY_SUMS, SUMS
from fedaux.flower.federation import read_reply
from fedaux.messages import (
    DataOrder,
    LookOrder,
    PrepareOrder,
    SumOrder,
    SumReply,
    SumsOrder,
    SumTerms,
    Tallies,
    Tally,
    TrainOrder,
    identity,
)
from fedaux.messages.replies import sums_shapes
from fedaux.methods.hooks import hooks_of
from fedaux.methods.summed_update import update_shapes, vector_length
from fedaux.privacy.curve25519 import FIELD_PRIME, SIGN_BIT, public_key
from fedaux.privacy.looks import look_scale
from fedaux.privacy.roster import load_signing_key, make_signing_key, write_roster
from fedaux.privacy.secure_sum import Keys, agreed_threshold, honest_sites, sum_settings
from fedaux.scoring.pooled import shared_noise_scale
from fedaux.scoring.registry import make_scorer

SITES = ("athens", "bern", "cairo")
TARGET = SITES[0]  # whose vector the server wants to know
HELPER = SITES[-1]  # the site that helps the server


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
        kind = type(order).__name__
        for what, other in other_orders(order):
            tried += 2
            if sums.accepts_unequal(order, other, same_terms=True):
                problems.append(
                    f"{kind}: a site keeps an order that the terms are not for ({what})"
                )
            if sums.accepts_unequal(order, other, same_terms=False):
                problems.append(
                    f"{kind}: sites that were asked different things are in one sum "
                    f"({what})"
                )
        for what in COPIES:
            tried += 1
            if sums.accepts_copy(order, what):
                problems.append(f"{kind}: a key that was copied ({what}) is taken")
    if problems:
        return AttackResult.exact(True, "; ".join(problems))
    detail = (
        f"{tried} sums of {len(SITES)} sites with unequal orders or copied keys are "
        "refused"
    )
    return AttackResult.exact(False, detail)


def other_orders(order: DataOrder) -> Iterator[tuple[str, DataOrder]]:
    """Orders that would make the answers of all other sites known, or harmless to a
    server.
    """
    if isinstance(order, TrainOrder):
        zeros = {name: np.zeros_like(array) for name, array in order.weights.items()}
        yield "a learning rate of nothing", replace(order, lr=1e-30)
        yield "other weights", replace(order, weights=zeros)
        yield "another round", replace(order, round=order.round + 1)
    elif isinstance(order, SumsOrder):
        flat = {
            "mean": np.zeros(order.width, np.float32),
            "deviation": np.full(order.width, 3e38, np.float32),
        }
        yield "features divided by 3e38", replace(order, standardisation=flat)
    elif isinstance(order, LookOrder):
        zeros = {name: np.zeros_like(array) for name, array in order.weights.items()}
        yield "a model that predicts one class", replace(order, weights=zeros)
        one = Tallies({"classes": Tally("classes")})
        yield (
            "other bins",
            replace(order, tallies=one.to_json(), size=one.size(order.classes)),
        )
    else:
        basis = np.zeros_like(order.public["basis"])
        yield "a map of zeros", replace(order, public={**order.public, "basis": basis})


def flipped_sign(key: bytes) -> bytes:
    """The key of the negative point: X25519 knows no signs, so secrets are the same."""
    negative = int.from_bytes(key, "little") ^ SIGN_BIT
    return negative.to_bytes(32, "little")


def with_small_order(key: bytes) -> bytes:
    """The key plus the point of order two, (0, −1): X25519 multiplies it away."""
    y = int.from_bytes(key, "little") & ~SIGN_BIT
    return (FIELD_PRIME - y).to_bytes(32, "little")


COPIES: Mapping[str, Callable[[bytes], bytes]] = {
    "as it is": lambda key: key,
    "with the other sign": flipped_sign,
    "plus a point of small order": with_small_order,
}


@dataclass(frozen=True)
class SecureSites:
    """Three sites with an owner's settings, keys of their own and a common roster. The
    last one helps the server.
    """

    sites: dict[str, AuditedSite]
    roster: Mapping[str, bytes]
    server: HostileServer

    @classmethod
    def at(cls, own: OwnSite, folder: Path) -> SecureSites:
        summing = own.with_federation(approval="none", sends=own.sends)
        sites = {name: summing.synthetic_site(folder / name, name) for name in SITES}
        roster = {name: make_signing_key(site.vault) for name, site in sites.items()}
        for site in sites.values():
            write_roster(site.vault / "roster.json", roster)
        return cls(sites, roster, summing.server_against(sites[TARGET]))

    def orders(self) -> list[DataOrder]:
        """Return an order of each kind that these sites answer."""
        server = self.server
        sends = server.config.federation.sends
        orders: list[DataOrder] = []
        if NOISY_SUMS in sends:
            column = np.eye(server.width)[0]
            orders.append(server.prepare(server.map(column=column)))
        for kind, word in SUMS.items():
            if word in sends:
                orders.append(server.sums(kind))
        if MODELS in sends:
            orders.append(training_order(server))
        if NOISY_COUNTS in sends:
            orders.append(look_order(server))
        return orders

    def terms(self, order: DataOrder) -> SumTerms:
        """Return what the sites of a sum of answers to this order must agree on."""
        federation = self.server.config.federation
        threshold = agreed_threshold(len(SITES), federation.threshold)
        honest = honest_sites(threshold, len(SITES), federation.colluders)
        return SumTerms(
            "run",
            identity(order),
            0,
            list(SITES),
            threshold,
            federation.colluders,
            self._noise_scale(order, honest),
            self._length(order),
        )

    def _noise_scale(self, order: DataOrder, honest: int) -> float:
        privacy = self.server.config.privacy
        if isinstance(order, LookOrder):
            return look_scale(order, privacy, honest)
        if not isinstance(order, PrepareOrder):
            return 0.0
        scorer = make_scorer(privacy, order.classes)
        return shared_noise_scale(scorer, order.public, privacy, honest)

    def _length(self, order: DataOrder) -> int:
        """Return how many numbers a site's answer to this order has."""
        if isinstance(order, PrepareOrder | LookOrder):
            return order.size
        if isinstance(order, SumsOrder):
            return vector_length(sums_shapes(order.classes, order.width, order.sends))
        hooks = hooks_of(order.method, json.loads(order.method_options))
        return vector_length(update_shapes(order, hooks))

    def ask(self, order: DataOrder | SumOrder) -> dict[str, bytes] | None:
        """Return what a site answers, or None if it refuses."""
        reply = self.sites[order.client].send(order)
        if reply.has_error():
            return None
        arrays = read_reply(SumReply, reply).arrays
        return {name: array.tobytes() for name, array in arrays.items()}

    def forget(self) -> None:
        """Let all sites forget the sums so far. Their keys and rosters stay."""
        for site in self.sites.values():
            for path in (site.vault / "sums").glob("*-*"):
                path.unlink()

    def accepts_unequal(
        self, order: DataOrder, other: DataOrder, same_terms: bool
    ) -> bool:
        """Whether a sum continues in which the first site is asked one thing, and the
        others another.

        With the same terms for all, a site would have to keep an order that they are
        not for. With terms for each order, sites would have to take keys that were
        signed for another sum.
        """
        self.forget()
        first_terms = self.terms(order).to_json()
        other_terms = first_terms if same_terms else self.terms(other).to_json()
        keys = {}
        for name in SITES:
            sent = replace(other, client=name, sum=other_terms)
            if name == TARGET:
                sent = replace(order, client=name, sum=first_terms)
            answer = self.ask(sent)
            if answer is None:
                return False
            keys[name] = np.frombuffer(answer[name], np.uint8)
        shares = self.ask(SumOrder(TARGET, first_terms, "shares", keys))
        return shares is not None

    def accepts_copy(self, order: DataOrder, how: str) -> bool:
        """Whether a site shares its secrets in a sum in which the last site sends the
        first one's key as its own.
        """
        self.forget()
        terms = self.terms(order)
        terms_json = terms.to_json()
        keys = {}
        for name in SITES:
            if name != HELPER:
                answer = self.ask(replace(order, client=name, sum=terms_json))
                assert answer is not None, "an honest order is answered"
                keys[name] = answer[name]
        mask_key = Keys.from_bytes(TARGET, keys[TARGET]).mask_key
        keys[HELPER] = self._forged(terms, COPIES[how](mask_key)).to_bytes()
        arrays = {name: np.frombuffer(key, np.uint8) for name, key in keys.items()}
        return self.ask(SumOrder(SITES[1], terms_json, "shares", arrays)) is not None

    def _forged(self, terms: SumTerms, copied: bytes) -> Keys:
        """Return the helper's keys: the copied one, whose proof it cannot make, and one
        of its own.
        """
        share = secrets.token_bytes(32)
        signing_key = load_signing_key(self.sites[HELPER].vault)
        unsigned = Keys(HELPER, copied, public_key(share), b"", b"", b"")
        message = unsigned.signed(sum_settings(terms, self.roster))
        proof = Ed25519PrivateKey.from_private_bytes(share).sign(message)
        return replace(
            unsigned,
            mask_proof=proof,
            share_proof=proof,
            signature=signing_key.sign(message),
        )

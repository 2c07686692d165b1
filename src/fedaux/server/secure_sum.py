"""The server's side of a secure sum: five exchanges with the sites, of which the third
has the masked vectors.

What the server has heard is kept next to the run's state, so that a server that is
killed continues with the same sum: sites answer the same question with the same bytes,
and refuse another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Failure
from fedaux.core.io import write_atomically
from fedaux.core.results import ClientMetrics
from fedaux.messages import (
    DataOrder,
    Federation,
    LookOrder,
    Masked,
    Order,
    PrepareOrder,
    Reply,
    SecureTotal,
    Subtotal,
    SumOrder,
    SumReply,
    SumsOrder,
    SumTerms,
    TrainOrder,
    identity,
)
from fedaux.messages.plan import ATTEMPTS
from fedaux.messages.replies import sums_shapes
from fedaux.methods.hooks import Hooks
from fedaux.methods.summed_update import (
    summed_contribution,
    update_shapes,
    vector_length,
)
from fedaux.privacy.looks import look_scale
from fedaux.privacy.secure_sum import (
    Keys,
    SecureSumError,
    SumSettings,
    Unmasking,
    agreed_threshold,
    honest_sites,
    sum_settings,
    unmasked_sum,
)
from fedaux.scoring.pooled import shared_noise_scale
from fedaux.server.server import Server

TRIES = 2  # of the same sum: sites that were away may be back, and answer as before
TRANSCRIPT = "secure-sum.json"
# hex by site and, for shares, by the site that they are for
Bytes = dict[str, dict[str, str]]
T = TypeVar("T", SumReply, Masked)
_NOUNS: dict[type, str] = {
    PrepareOrder: "releases",
    SumsOrder: "features",
    LookOrder: "noisy counts",
}


@dataclass(frozen=True)
class SecureSums:
    """Sites as a federation that answers with sums over them, as regional servers do;
    no one sees the answer of a single site.

    Attributes:
        server: The server.
        federation: The sites.
        run: The id of the run, which sites hold every sum against.
    """

    server: Server
    federation: Federation
    run: str

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Yield the sum of each prototype's clients, and the failures of sites.

        The sum of models is a `Subtotal`, that of anything else a `SecureTotal`. There
        is none if too few sites took part.
        """
        groups: dict[str, list[DataOrder]] = {}
        for order in orders:
            assert isinstance(order, DataOrder)
            # the vectors of one prototype's clients have one length
            groups.setdefault(order.prototype, []).append(order)
        for group in groups.values():
            total, failures = self._total(group)
            yield from failures
            if total is None:
                continue
            if isinstance(total.order, TrainOrder):
                label = self.server.label_of(total.order.client)
                yield summed_updates(total, total.order, label, self.server.hooks)
            else:
                yield total

    def _total(
        self, orders: Sequence[DataOrder]
    ) -> tuple[SecureTotal | None, list[Failure]]:
        """Try to sum up what sites answer to orders of one kind for one prototype.

        A sum under noise that fails is tried again as another one, at the cost of the
        sites whose vector had left them.
        """
        failures: list[Failure] = []
        roster = self.server.roster
        transcript = Transcript.of(self.server.folder)
        for terms in self._attempts(orders):
            settings = sum_settings(terms, roster)
            for _ in range(TRIES):
                current = SecureSum(
                    self.federation, orders, settings, terms, transcript
                )
                try:
                    total = current.run()
                except SecureSumError as error:
                    reason = f"the secure sum was given up: {error}"
                    failures = [Failure("all sites", reason), *current.failures]
                else:
                    return total, [*current.failures, *failures]
        return None, failures

    def _attempts(self, orders: Sequence[DataOrder]) -> Iterator[SumTerms]:
        """Yield the terms of each attempt at a sum."""
        order = orders[0]
        policy = self.server.config.federation
        sites = sorted(order.client for order in orders)
        threshold = agreed_threshold(len(sites), policy.threshold)
        scale = 0.0
        attempts = 1
        if isinstance(order, PrepareOrder | LookOrder):
            honest = honest_sites(threshold, len(sites), policy.colluders)
            scale = self._noise_scale(order, honest)
            attempts = ATTEMPTS
        for attempt in range(attempts):
            yield SumTerms(
                self.run,
                identity(order),
                attempt,
                sites,
                threshold,
                policy.colluders,
                scale,
                summed_length(order, self.server.hooks),
            )

    def _noise_scale(self, order: PrepareOrder | LookOrder, honest: int) -> float:
        """Return the scale of each site's share of the noise."""
        privacy = self.server.config.privacy
        if isinstance(order, LookOrder):
            return look_scale(order, privacy, honest)
        return shared_noise_scale(self.server.scorer, order.public, privacy, honest)


def summed_length(order: DataOrder, hooks: Hooks) -> int:
    """Return how many numbers a site adds to the sum."""
    if isinstance(order, PrepareOrder | LookOrder):
        return order.size
    if isinstance(order, SumsOrder):
        return vector_length(sums_shapes(order.classes, order.width, order.sends))
    assert isinstance(order, TrainOrder)
    return vector_length(update_shapes(order, hooks))


def summed_updates(
    total: SecureTotal, order: TrainOrder, label: str, hooks: Hooks
) -> Subtotal:
    """Return the sum of a prototype's updates, of which only means are known."""
    count = len(total.sites)
    contribution, records, loss = summed_contribution(
        total.vector, order, hooks, label, count
    )
    mean = ClientMetrics(max(1, records // count), loss, 0.0)
    return Subtotal(
        contribution.to_arrays(),
        total.accounts,
        dict.fromkeys(total.sites, mean),
        unprotected=count,
    )


@dataclass
class Transcript:
    """What sites have answered so far, on disk after every exchange if there is a
    folder.
    """

    path: Path | None
    # by sum and step
    answers: dict[str, dict[str, Bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path | None) -> Transcript:
        if folder is None:
            return cls(None)
        path = folder / TRANSCRIPT
        if not path.exists():
            return cls(path)
        return cls(path, json.loads(path.read_bytes()))

    def of_step(self, settings: SumSettings, step: str) -> Bytes:
        answers = self.answers.get(settings.context.hex(), {})
        return dict(answers.get(step, {}))

    def keep(self, settings: SumSettings, step: str, answers: Bytes) -> None:
        """Keep the answers of a step, and those of this sum alone."""
        sum_id = settings.context.hex()
        earlier_steps = self.answers.get(sum_id, {})
        self.answers = {sum_id: {**earlier_steps, step: answers}}
        if self.path is not None:
            write_atomically(self.path, json.dumps(self.answers).encode())


@dataclass
class SecureSum:
    """One sum over the sites of these orders."""

    federation: Federation
    orders: Sequence[DataOrder]
    settings: SumSettings
    terms: SumTerms
    transcript: Transcript
    failures: list[Failure] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)

    def run(self) -> SecureTotal:
        """Return the sum of at least `threshold` sites, or raise a `SecureSumError`."""
        public = _by_site(self._begin())
        shares = self._exchange("shares", dict.fromkeys(self._enough(public), public))
        sharing = self._enough(shares)
        masked = self._masked(sharing, shares)
        survivors = self._enough(masked)
        names = dict.fromkeys(survivors, "")
        signatures = _by_site(
            self._exchange("survivors", dict.fromkeys(survivors, names))
        )
        signers = self._enough(signatures)
        unmasking = self._exchange("unmask", dict.fromkeys(signers, signatures))
        replies = [
            Unmasking.from_bytes(site, _from_hex(answer))
            for site, answer in unmasking.items()
        ]
        keys = {
            site: Keys.from_bytes(site, bytes.fromhex(key))
            for site, key in public.items()
        }
        vector = unmasked_sum(self.settings, keys, masked, sharing, replies)
        return SecureTotal(
            self.orders[0],
            vector,
            tuple(survivors),
            self.accounts,
            self.terms.scale,
        )

    def _begin(self) -> Bytes:
        """Send the order to every site, and return the keys of those that will answer
        it.
        """
        earlier = self.transcript.of_step(self.settings, "keys")
        # of a server that was killed: this set is what other steps were for
        if len(earlier) >= self.settings.threshold:
            return earlier
        terms = self.terms.to_json()
        orders = [
            replace(order, sum=terms)
            for order in self.orders
            if order.client not in earlier
        ]
        return self._collect("keys", orders, earlier)

    def _exchange(self, step: str, questions: Mapping[str, Mapping[str, str]]) -> Bytes:
        """Ask each site its question, and return all answers. Those of an earlier try
        are not asked for again.
        """
        earlier = self.transcript.of_step(self.settings, step)
        if len(earlier) >= self.settings.threshold:
            return earlier
        unanswered = {
            site: question
            for site, question in questions.items()
            if site not in earlier
        }
        return self._collect(step, self._steps(step, unanswered), earlier)

    def _collect(self, step: str, orders: Sequence[Order], earlier: Bytes) -> Bytes:
        answers = dict(earlier)
        for reply in self._ask(SumReply, orders, step):
            answers[reply.client] = {
                name: array.tobytes().hex() for name, array in reply.arrays.items()
            }
        self.transcript.keep(self.settings, step, answers)
        return answers

    def _steps(
        self, step: str, questions: Mapping[str, Mapping[str, str]]
    ) -> list[SumOrder]:
        """Make the orders of a step. Sites that get the same question get the same
        object, which is packed once.
        """
        arrays = {id(question): _arrays(question) for question in questions.values()}
        terms = self.terms.to_json()
        return [
            SumOrder(site, terms, step, arrays[id(question)])
            for site, question in questions.items()
        ]

    def _masked(
        self, sharing: Sequence[str], shares: Bytes
    ) -> dict[str, NDArray[np.uint64]]:
        """Ask all sites that have shared their secrets for their vectors, under the
        masks of all of these.
        """
        sealed = {site: _shares_for(site, sharing, shares) for site in sharing}
        orders = self._steps("masked", sealed)
        vectors: dict[str, NDArray[np.uint64]] = {}
        for reply in self._ask(Masked, orders, "masked vector"):
            self.accounts[reply.client] = Account.from_json(reply.account)
            vectors[reply.client] = reply.arrays["masked"]
        agreed = self.transcript.of_step(self.settings, "masked")
        if len(agreed) >= self.settings.threshold:  # sites may have signed this set
            vectors = {
                site: vector for site, vector in vectors.items() if site in agreed
            }
        survivors = agreed or {site: {} for site in vectors}
        self.transcript.keep(self.settings, "masked", survivors)
        return vectors

    @property
    def noun(self) -> str:
        """What is summed, in words."""
        order = self.orders[0]
        if isinstance(order, TrainOrder):
            return f"the models of round {order.round}"
        return _NOUNS[type(order)]

    def _ask(self, kind: type[T], orders: Sequence[Order], noun: str) -> list[T]:
        replies: list[T] = []
        for reply in self.federation.ask(orders):
            if isinstance(reply, kind):
                replies.append(reply)
            elif isinstance(reply, Failure):
                reason = f"no {noun}: {reply.reason}"
                self.failures.append(replace(reply, reason=reason))
        return replies

    def _enough(self, answers: Mapping[str, object]) -> list[str]:
        if len(answers) >= self.settings.threshold:
            return sorted(answers)
        reasons = "; ".join(
            f"{failure.client}: {failure.reason}" for failure in self.failures[:3]
        )
        raise SecureSumError(
            f"Cannot finish: the sum of {self.noun} needs {self.settings.threshold} of "
            f"{len(self.terms.sites)} sites, and {len(answers)} are left ({reasons}). "
            "Start the run again when more sites are connected."
        )


def _by_site(answers: Bytes) -> dict[str, str]:
    """Return what each site says of itself."""
    return {site: answer[site] for site, answer in answers.items() if site in answer}


def _shares_for(site: str, sharing: Sequence[str], shares: Bytes) -> dict[str, str]:
    """Return the shares that the other sites have encrypted for one."""
    return {
        sender: shares[sender][site]
        for sender in sharing
        if sender != site and site in shares[sender]
    }


def _arrays(answers: Mapping[str, str]) -> Arrays:
    return {
        site: np.frombuffer(bytes.fromhex(answer), np.uint8)
        for site, answer in answers.items()
    }


def _from_hex(answers: Mapping[str, str]) -> dict[str, bytes]:
    return {site: bytes.fromhex(answer) for site, answer in answers.items()}

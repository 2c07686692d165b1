"""The server's side of a secure sum: five exchanges with the sites, of which the third
has the masked vectors.

What the server has heard is kept beside the run's state, so that a server that is
killed goes on with the same sum: sites answer the same question with the same bytes,
and refuse another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Failure
from fedaux.core.io import write_atomically
from fedaux.core.timing import Costs, payload_bytes
from fedaux.messages import (
    DataOrder,
    Federation,
    Masked,
    Order,
    PrepareOrder,
    SumOrder,
    SumReply,
    SumTerms,
    TrainOrder,
    identity,
)
from fedaux.messages.plan import ATTEMPTS
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
from fedaux.server.run_state import RunState
from fedaux.server.server import Server

TRIES = 2  # of the same sum: sites that were away may be back, and answer as before
TRANSCRIPT = "secure-sum.json"
# hex by site and, for shares, by the site that they are for
Bytes = dict[str, dict[str, str]]
T = TypeVar("T", SumReply, Masked)


@dataclass(frozen=True, eq=False)
class SecureTotal:
    """A sum, of which sites, and the accounts of all sites that sent a vector."""

    vector: NDArray[np.int64]
    sites: tuple[str, ...]
    accounts: dict[str, Account]
    terms: SumTerms


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
        path = None if folder is None else folder / TRANSCRIPT
        known = (
            json.loads(path.read_bytes()) if path is not None and path.exists() else {}
        )
        return cls(path, known)

    def of_step(self, settings: SumSettings, step: str) -> Bytes:
        return dict(self.answers.get(settings.context.hex(), {}).get(step, {}))

    def keep(self, settings: SumSettings, step: str, answers: Bytes) -> None:
        """Keep the answers of a step, and those of this sum alone."""
        sum_id = settings.context.hex()
        self.answers = {sum_id: {**self.answers.get(sum_id, {}), step: answers}}
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
    costs: Costs
    failures: list[Failure] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)

    def run(self) -> SecureTotal:
        """Return the sum of at least `threshold` sites, or raise a `SecureSumError`."""
        keys = self._begin()
        public = {name: answer[name] for name, answer in keys.items() if name in answer}
        shares = self._exchange("shares", dict.fromkeys(self._enough(public), public))
        sharing = self._enough(shares)
        masked = self._masked(sharing, shares)
        survivors = self._enough(masked)
        names = dict.fromkeys(survivors, "")
        signed = self._exchange("survivors", dict.fromkeys(survivors, names))
        signatures = {
            name: answer[name] for name, answer in signed.items() if name in answer
        }
        found = self._exchange(
            "unmask", dict.fromkeys(self._enough(signatures), signatures)
        )
        replies = [
            Unmasking.from_bytes(name, _from_hex(answer))
            for name, answer in found.items()
        ]
        all_keys = {
            name: Keys.from_bytes(name, bytes.fromhex(public[name])) for name in public
        }
        total = unmasked_sum(self.settings, all_keys, masked, sharing, replies)
        return SecureTotal(total, tuple(survivors), self.accounts, self.terms)

    def _begin(self) -> Bytes:
        """Send the order to every site, and return the keys of those that will answer
        it.
        """
        known = self.transcript.of_step(self.settings, "keys")
        # of a server that was killed: this set is what other steps were for
        if len(known) >= self.settings.threshold:
            return known
        terms = self.terms.to_json()
        orders = [
            replace(order, sum=terms)
            for order in self.orders
            if order.client not in known
        ]
        return self._collect("keys", orders, known)

    def _exchange(self, step: str, questions: Mapping[str, Mapping[str, str]]) -> Bytes:
        """Ask each site its question, and return all answers; those that are known are
        not asked for again.
        """
        known = self.transcript.of_step(self.settings, step)
        if len(known) >= self.settings.threshold:
            return known
        unanswered = {
            name: question for name, question in questions.items() if name not in known
        }
        return self._collect(step, self._steps(step, unanswered), known)

    def _collect(self, step: str, orders: Sequence[Order], known: Bytes) -> Bytes:
        answers = dict(known)
        for reply in self._ask(SumReply, orders, step):
            answers[reply.client] = {
                name: array.tobytes().hex() for name, array in reply.arrays.items()
            }
        self.transcript.keep(self.settings, step, answers)
        return answers

    def _steps(
        self, step: str, questions: Mapping[str, Mapping[str, str]]
    ) -> list[SumOrder]:
        """Make the orders of a step; sites that get the same question get the same
        object, which is packed once.
        """
        arrays = {id(question): _arrays(question) for question in questions.values()}
        terms = self.terms.to_json()
        return [
            SumOrder(name, terms, step, arrays[id(question)])
            for name, question in questions.items()
        ]

    def _masked(
        self, sharing: Sequence[str], shares: Bytes
    ) -> dict[str, NDArray[np.uint64]]:
        """Ask all sites that have shared their secrets for their vectors, under the
        masks of all of these.
        """
        sealed = {
            site: {
                name: shares[name][site]
                for name in sharing
                if name != site and site in shares[name]
            }
            for site in sharing
        }
        vectors: dict[str, NDArray[np.uint64]] = {}
        for reply in self._ask(Masked, self._steps("masked", sealed), "masked vector"):
            self.accounts[reply.client] = Account.from_json(reply.account)
            vectors[reply.client] = reply.arrays["masked"]
        agreed = self.transcript.of_step(self.settings, "masked")
        if len(agreed) >= self.settings.threshold:  # sites may have signed this set
            vectors = {
                name: vector for name, vector in vectors.items() if name in agreed
            }
        self.transcript.keep(
            self.settings, "masked", agreed or {name: {} for name in vectors}
        )
        return vectors

    @property
    def noun(self) -> str:
        """What is summed, in words."""
        order = self.orders[0]
        if isinstance(order, TrainOrder):
            return f"the models of round {order.round}"
        return "releases" if isinstance(order, PrepareOrder) else "features"

    def _ask(self, kind: type[T], orders: Sequence[Order], noun: str) -> list[T]:
        replies: list[T] = []
        for reply in self.federation.ask(self.costs.count_sent(orders)):
            self.costs.received += payload_bytes(reply)
            if isinstance(reply, kind):
                replies.append(reply)
            elif isinstance(reply, Failure):
                self.failures.append(
                    replace(reply, reason=f"no {noun}: {reply.reason}")
                )
        return replies

    def _enough(self, answers: Mapping[str, object]) -> list[str]:
        if len(answers) < self.settings.threshold:
            reasons = "; ".join(
                f"{failure.client}: {failure.reason}" for failure in self.failures[:3]
            )
            raise SecureSumError(
                f"the sum of {self.noun} needs {self.settings.threshold} of "
                f"{len(self.terms.sites)} sites, and {len(answers)} are left "
                f"({reasons})"
            )
        return sorted(answers)


def secure_total(
    server: Server,
    state: RunState,
    federation: Federation,
    orders: Sequence[DataOrder],
    length: int,
    costs: Costs,
    noise: Callable[[int], float] | None = None,
) -> tuple[SecureTotal | None, list[Failure]]:
    """Sum up what sites answer to these orders, without seeing any answer.

    Args:
        server: The server.
        state: The run's state, for its id.
        federation: The sites.
        orders: All of one kind and for one prototype.
        length: Of the vectors that sites send.
        costs: Of the round, to which bytes are added.
        noise: The scale, in steps, of the noise that each site adds, given the number
            of sites that surely add it. A sum that fails is then tried again, at the
            cost of the sites whose vector had left them.

    Returns:
        The sum, or None if too few sites took part; and the failures of sites.
    """
    sites, failures, own = (
        sorted(order.client for order in orders),
        list[Failure](),
        server.config.federation,
    )
    threshold, transcript = (
        agreed_threshold(len(sites), own.threshold),
        Transcript.of(server.folder),
    )
    run = state.run or server.orders.run
    scale = noise(honest_sites(threshold, len(sites), own.colluders)) if noise else 0.0
    for attempt in range(ATTEMPTS if noise else 1):
        terms = SumTerms(
            run,
            identity(orders[0]),
            attempt,
            sites,
            threshold,
            own.colluders,
            scale,
            length,
        )
        for _ in range(TRIES):
            current = SecureSum(
                federation,
                orders,
                sum_settings(terms, server.roster),
                terms,
                transcript,
                costs,
            )
            try:
                return current.run(), [*current.failures, *failures]
            except SecureSumError as error:
                failures = [
                    Failure("all sites", f"the secure sum was given up: {error}"),
                    *current.failures,
                ]
    return None, failures


def _arrays(answers: Mapping[str, str]) -> Arrays:
    return {
        name: np.frombuffer(bytes.fromhex(text), np.uint8)
        for name, text in answers.items()
    }


def _from_hex(answers: Mapping[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(text) for name, text in answers.items()}

"""A site's part in a secure sum (`privacy.secure_sum`), kept in its vault from message
to message.

The first message is the order itself, with the terms of the sum. The site checks
everything that can be checked without a record, keeps the order, and answers with its
keys: an order that it would refuse costs no one anything. Later messages name the sum
only. What is summed is the kept order, whose identity is in everything that the sites
sign.

A node starts a process for every message. So the state of a sum and every answer are on
disk before the answer is sent: the same question gets the same bytes, and another
question in its place is refused. Secrets are deleted once the masks are off.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedaux.client.answers import AnswerStore
from fedaux.client.site import Site
from fedaux.core.arrays import fingerprint_arrays
from fedaux.core.failures import OrderError
from fedaux.core.io import delete_all_but_newest, hashed_name, locked, write_atomically
from fedaux.messages import (
    DataOrder,
    LookOrder,
    Masked,
    PrepareOrder,
    SumOrder,
    SumReply,
    SumTerms,
    TrainOrder,
    identity,
    question,
)
from fedaux.messages.stored import order_from_bytes, order_to_bytes
from fedaux.privacy.looks import look_scale
from fedaux.privacy.roster import (
    ROSTER_FILE,
    load_signing_key,
    read_roster,
    simulated_key,
)
from fedaux.privacy.secure_sum import (
    Keys,
    SiteState,
    SumSettings,
    agreed_threshold,
    honest_sites,
    new_site,
    sum_settings,
)
from fedaux.scoring.pooled import shared_noise_scale
from fedaux.scoring.registry import make_scorer

FOLDER = "sums"  # below the account
REMEMBERED_SUMS = 8  # sums that a site remembers
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Remembered:
    """What the file of a sum holds: the protocol's state, and the answers given, by
    step.
    """

    state: SiteState
    # (question, answer in hex by site)
    answers: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        state = self.state
        content: dict[str, Any] = {
            "mask_key": state.mask_key.hex(),
            "share_key": state.share_key.hex(),
            "seed": state.seed.hex(),
            "keys": {name: keys.to_bytes().hex() for name, keys in state.keys.items()},
            "shares": {name: share.hex() for name, share in state.shares.items()},
            "name": state.name,
            "survivors": state.survivors,
            "finished": state.finished,
            "answers": self.answers,
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, settings: SumSettings) -> Remembered:
        content: dict[str, Any] = json.loads(stored)
        state = SiteState(
            settings,
            content["name"],
            mask_key=bytes.fromhex(content["mask_key"]),
            share_key=bytes.fromhex(content["share_key"]),
            seed=bytes.fromhex(content["seed"]),
            keys={
                name: Keys.from_bytes(name, bytes.fromhex(keys))
                for name, keys in content["keys"].items()
            },
            shares={
                name: bytes.fromhex(share) for name, share in content["shares"].items()
            },
            survivors=tuple(content["survivors"]),
            finished=content["finished"],
        )
        answers = {step: tuple(pair) for step, pair in content["answers"].items()}
        return cls(state, answers)

    def with_answer(
        self,
        step: str,
        question_hash: str,
        answer: Mapping[str, bytes],
        state: SiteState,
    ) -> Remembered:
        in_hex = {name: value.hex() for name, value in answer.items()}
        return Remembered(state, {**self.answers, step: (question_hash, in_hex)})

    def without_secrets(self, step: str) -> Remembered:
        """Forget all answers but the last step's: its secrets are gone."""
        return replace(self, answers={step: self.answers[step]})


@dataclass(frozen=True)
class Participation:
    """A client's part in one sum, under its own settings."""

    site: Site
    client: str
    terms: SumTerms

    @classmethod
    def of(cls, order: SumOrder | DataOrder, site: Site) -> Participation:
        """Check the terms of a sum against the site's own settings and its own
        roster.
        """
        terms = SumTerms.from_json(order.sum)
        settings = site.config.federation
        takes_part = order.client in site.clients and order.client in terms.sites
        if not settings.secure or not takes_part:
            raise OrderError(
                f"Cannot take part in this secure sum: {order.client} is not among its "
                "sites, or federation.secure is not set for it. Set federation.secure "
                "at the server and at every site."
            )
        are_names = all(isinstance(name, str) for name in terms.sites)
        if not are_names or len(set(terms.sites)) != len(terms.sites):
            raise OrderError(
                "Cannot take part in this secure sum: its sites must be different "
                "names. Correct federation.sites at the server."
            )
        own_clients = [name for name in terms.sites if name in site.clients]
        homes = {site.account_folder(name) for name in own_clients}
        if len(homes) != len(own_clients):
            raise OrderError(
                "Cannot take part in this secure sum: two names that share an account "
                "are one site, whose records count once. Give each site a vault."
            )
        least = agreed_threshold(len(terms.sites), settings.threshold)
        if terms.threshold < least or terms.colluders != settings.colluders:
            raise OrderError(
                "Cannot take part in this secure sum: it would be of "
                f"{terms.threshold} sites with {terms.colluders} colluders, and this "
                f"client's settings ask for at least {least} of {len(terms.sites)} "
                f"sites, with {settings.colluders}. Set the same federation.threshold "
                "and federation.colluders at the server and at every site."
            )
        return cls(site, order.client, terms)

    @cached_property
    def settings(self) -> SumSettings:
        if not self._real:
            return sum_settings(self.terms, None)
        return sum_settings(self.terms, read_roster(self._home / ROSTER_FILE))

    @cached_property
    def signing_key(self) -> Ed25519PrivateKey:
        if not self._real:
            return simulated_key(self.client)
        return load_signing_key(self._home)

    @property
    def _real(self) -> bool:
        """Whether this is a site with records, a roster and a key of its own, rather
        than a part of a simulation.
        """
        return not self.site.is_simulated

    @property
    def _home(self) -> Path:
        return self.site.account_folder(self.client)

    @property
    def honest(self) -> int:
        """How many sites add their share of the noise, whatever happens."""
        return honest_sites(
            self.terms.threshold, len(self.terms.sites), self.terms.colluders
        )

    @property
    def folder(self) -> Path:
        return self._home / FOLDER

    @property
    def _name(self) -> str:
        return f"{hashed_name(self.client)}-{self.settings.context.hex()}"

    @property
    def path(self) -> Path:
        return self.folder / f"sum-{self._name}.json"

    @property
    def order_path(self) -> Path:
        return self.folder / f"order-{self._name}.safetensors"

    @property
    def masked_path(self) -> Path:
        return self.folder / f"masked-{self._name}.bin"

    @contextmanager
    def locked(self) -> Iterator[Remembered | None]:
        """Yield what the site remembers of this sum, while no other process takes part
        in it.
        """
        with locked(self.folder / ".lock"):
            if not self.path.exists():
                yield None
                return
            yield Remembered.from_bytes(self.path.read_bytes(), self.settings)

    def remember(self, memory: Remembered) -> None:
        write_atomically(self.path, memory.to_bytes(), private=True)

    def kept_order(self) -> DataOrder:
        """Return the order that this sum was begun with."""
        if not self.order_path.exists():
            raise OrderError(
                f"Cannot continue the secure sum: {self.client} knows nothing of the "
                "sum that is asked for. Start the run again."
            )
        return order_from_bytes(self.order_path.read_bytes())

    def begin(self, order: DataOrder) -> SumReply:
        """Step 0: check the order against the terms, keep it, and answer with this
        site's keys.

        The keys of a sum are drawn once. Another order under the same terms is refused,
        even if it differs only in what is this site's own.
        """
        self.check_order(order)
        question_hash = question(order)
        with self.locked() as memory:
            if memory is None:
                memory = self._new_sum(order, question_hash)
        return self._stored_answer(memory, "keys", question_hash)

    def _new_sum(self, order: DataOrder, question_hash: str) -> Remembered:
        """Draw the keys of a sum, and keep them with its order before they are sent."""
        state = new_site(self.settings, self.client)
        keys = {self.client: state.begin(self.signing_key).to_bytes()}
        memory = Remembered(state).with_answer("keys", question_hash, keys, state)
        self._delete_older()
        # under the keys of a sum that was forgotten
        self.masked_path.unlink(missing_ok=True)
        write_atomically(self.order_path, order_to_bytes(order), private=True)
        self.remember(memory)
        return memory

    def take_part(self, order: SumOrder) -> SumReply:
        """Answer one of the later messages, but the one that asks for the masked
        vector.
        """
        question_hash = fingerprint_arrays(order.arrays)
        with self.locked() as memory:
            if memory is None:
                raise OrderError(
                    f"Cannot continue the secure sum: {order.client} knows nothing of "
                    f"the sum that {order.step!r} belongs to. Start the run again."
                )
            if order.step not in memory.answers:
                memory = self._next_step(memory, order, question_hash)
        return self._stored_answer(memory, order.step, question_hash)

    def _next_step(
        self, memory: Remembered, order: SumOrder, question_hash: str
    ) -> Remembered:
        """Take a step of the protocol, and keep its answer before it is sent."""
        received = _bytes_of(order)
        state, answer = _step(order.step, memory.state, received, self)
        memory = memory.with_answer(order.step, question_hash, answer, state)
        if state.finished:
            # what was sent under the secrets goes with them
            memory = memory.without_secrets(order.step)
            self.masked_path.unlink(missing_ok=True)
            self.order_path.unlink(missing_ok=True)
        self.remember(memory)
        return memory

    @contextmanager
    def masking(self, order: SumOrder) -> Iterator[SiteState]:
        """Take the shares that others have sent, and yield the state that masks this
        site's vector.

        The set of shares decides the masks, so the first set counts, even if computing
        the vector then fails. No other process takes part in the sum meanwhile: two
        different vectors under the same masks would reveal their difference.
        """
        question_hash = fingerprint_arrays(order.arrays)
        with self.locked() as memory:
            if memory is None or not memory.state.keys:
                raise OrderError(
                    f"Cannot continue the secure sum: {self.client} has not shared its "
                    "secrets in this sum. Start the run again."
                )
            if "masked" not in memory.answers:
                state = memory.state.accept(_bytes_of(order))
                memory = memory.with_answer("masked", question_hash, {}, state)
                self.remember(memory)
            elif memory.answers["masked"][0] != question_hash:
                raise OrderError(
                    f"Cannot continue the secure sum: {self.client} has answered this "
                    "sum to another question. Start the run again."
                )
            yield memory.state

    def masked(self, store: AnswerStore) -> Masked:
        """Return the reply with the masked vector, which is on disk."""
        vector = np.frombuffer(self.masked_path.read_bytes(), np.uint64)
        return Masked(self.client, store.account().to_json(), {"masked": vector})

    def own_hash(self, state: SiteState) -> str:
        """Hash the sum with this site's keys in it, which are fresh in every sum."""
        return hashlib.sha256(
            state.settings.context + state.keys[state.name].to_bytes()
        ).hexdigest()

    def _stored_answer(
        self, memory: Remembered, step: str, question_hash: str
    ) -> SumReply:
        answered, in_hex = memory.answers.get(step, ("", {}))
        if answered != question_hash:
            raise OrderError(
                f"Cannot continue the secure sum: {self.client} has answered {step!r} "
                "of this sum to another question. Start the run again."
            )
        arrays = {
            name: np.frombuffer(bytes.fromhex(value), np.uint8)
            for name, value in in_hex.items()
        }
        return SumReply(self.client, step, arrays)

    def check_order(self, order: DataOrder) -> None:
        """Raise an error unless this order is what the terms are for, so that all sites
        of the sum were asked it.

        And unless this site would add noise of the agreed scale, on which the others
        count.
        """
        terms = self.terms
        if terms.order != identity(order):
            raise OrderError(
                "Cannot take part in this secure sum: the terms are for another order "
                "than this one, and sites of one sum are asked the same. Install the "
                "same version of fedaux at the server and the sites."
            )
        if isinstance(order, TrainOrder) and order.run != terms.run:
            raise OrderError(
                "Cannot take part in this secure sum: the order belongs to the run "
                f"{order.run!r}, the terms to {terms.run!r}. Start the run again."
            )
        if isinstance(order, PrepareOrder | LookOrder) and order.size != terms.length:
            raise OrderError(
                "Cannot take part in this secure sum: the terms are for "
                f"{terms.length} numbers, and the answer to the order has "
                f"{order.size}. Install the same version of fedaux at the server and "
                "the sites."
            )
        scale = self._own_scale(order)
        if not math.isclose(terms.scale, scale, rel_tol=1e-9):
            raise OrderError(
                "Cannot take part in this secure sum: the terms are for noise of scale "
                f"{terms.scale:.9g}, and here it would be {scale:.9g}. Set the same "
                "[privacy] at the server and at every site."
            )

    def _own_scale(self, order: DataOrder) -> float:
        """Return the scale of this site's share of the noise, by its own settings, or 0
        for what has no noise.
        """
        privacy = self.site.config.privacy
        if isinstance(order, LookOrder):
            return look_scale(order, privacy, self.honest)
        if not isinstance(order, PrepareOrder):
            return 0.0
        return shared_noise_scale(
            make_scorer(privacy, order.classes), order.public, privacy, self.honest
        )

    def _delete_older(self) -> None:
        for pattern in ("sum-*.json", "masked-*.bin", "order-*.safetensors"):
            delete_all_but_newest(self.folder, pattern, REMEMBERED_SUMS)


def _bytes_of(order: SumOrder) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in order.arrays.items()}


def _step(
    step: str,
    state: SiteState,
    received: Mapping[str, bytes],
    participation: Participation,
) -> tuple[SiteState, dict[str, bytes]]:
    if step == "shares":
        keys = [Keys.from_bytes(name, sent) for name, sent in received.items()]
        return state.share(keys)
    if step == "survivors":
        state, signature = state.agree(received, participation.signing_key)
        return state, {participation.client: signature}
    if step == "unmask":
        state, unmasking = state.unmask(received)
        return state, unmasking.to_bytes()
    raise OrderError("Cannot answer: this sum is finished. Start another run.")

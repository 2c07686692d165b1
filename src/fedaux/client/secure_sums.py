"""A site's part in a secure sum (`privacy.secure_sum`), kept in its vault from message to message.

A node starts a process for every message. So the state of a sum and every answer are on disk before the answer is sent:
the same question gets the same bytes, and another question in its place is refused. Secrets are deleted once the masks
are off. A sum is entered in the account before a record is read for it. What is summed without noise is summed once in
a run, under one set of keys: the difference of two sums over almost the same sites would be what one site sent.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedaux.client.kept_state import order_hash
from fedaux.client.site import Site
from fedaux.core.io import delete_all_but_newest, hashed_name, locked, write_atomically
from fedaux.core.messages import (
    DataOrder,
    Masked,
    OrderError,
    SumOrder,
    SumReply,
    SumTerms,
    TrainOrder,
    statistic,
)
from fedaux.models.inference import fingerprint_arrays
from fedaux.privacy.account import SUMMED, BudgetStore
from fedaux.privacy.roster import ROSTER_FILE, load_signing_key, read_roster, simulated_key
from fedaux.privacy.secure_sum import (
    Keys,
    SiteState,
    SumSettings,
    agreed_threshold,
    honest_sites,
    new_site,
    sum_settings,
)

FOLDER, KEPT = "sums", 8  # below the account: the sums that a site remembers
UNPROTECTED = "unprotected.json"  # which sums without noise this site has taken part in
_NOT_ASKED = frozenset({"known_entries", "known_signature", "extractor"})  # what the server knows, what the site has
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Remembered:
    """What the file of a sum holds: the protocol's state, and the answers given, by step."""

    state: SiteState
    answers: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)  # (question, answer in hex by site)

    def to_bytes(self) -> bytes:
        state = self.state
        secret = {name: getattr(state, name).hex() for name in ("mask_key", "share_key", "seed")}
        keys = {name: one.to_bytes().hex() for name, one in state.keys.items()}
        shares = {name: share.hex() for name, share in state.shares.items()}
        rest = {"name": state.name, "survivors": state.survivors, "finished": state.finished, "answers": self.answers}
        return json.dumps({**secret, "keys": keys, "shares": shares, **rest}).encode()

    @classmethod
    def from_bytes(cls, text: bytes, settings: SumSettings) -> Remembered:
        facts: dict[str, Any] = json.loads(text)
        answers = {step: (question, answer) for step, (question, answer) in facts["answers"].items()}
        secret: dict[str, Any] = {name: bytes.fromhex(facts[name]) for name in ("mask_key", "share_key", "seed")}
        keys = {name: Keys.from_bytes(name, bytes.fromhex(one)) for name, one in facts["keys"].items()}
        shares = {name: bytes.fromhex(share) for name, share in facts["shares"].items()}
        survivors = tuple(facts["survivors"])
        state = SiteState(settings, facts["name"], **secret, keys=keys, shares=shares, survivors=survivors)
        return cls(replace(state, finished=facts["finished"]), answers)


@dataclass(frozen=True)
class Participation:
    """A client's part in one sum, under its own settings."""

    site: Site
    client: str
    terms: SumTerms

    @classmethod
    def of(cls, order: SumOrder | DataOrder, site: Site) -> Participation:
        """Check the terms of a sum against the site's own settings and its own roster."""
        terms, own = SumTerms.from_json(order.sum), site.config.federation
        if not own.secure or order.client not in site.clients or order.client not in terms.sites:
            raise OrderError(f"{order.client} takes no part in this secure sum; federation.secure is its own setting")
        if not all(isinstance(name, str) for name in terms.sites) or len(set(terms.sites)) != len(terms.sites):
            raise OrderError("the sites of a secure sum must be different names")
        homes = [site.account_folder(name) for name in terms.sites if name in site.clients]
        if len(set(homes)) != len(homes):
            raise OrderError("two names that share an account are one site in a secure sum: their records count once")
        least = agreed_threshold(len(terms.sites), own.threshold)
        if terms.threshold < least or terms.colluders != own.colluders:
            raise OrderError(
                f"the sum would be of {terms.threshold} sites with {terms.colluders} colluders; this client's settings "
                f"ask for at least {least} of {len(terms.sites)} sites, with {own.colluders}"
            )
        return cls(site, order.client, terms)

    @cached_property
    def settings(self) -> SumSettings:
        return sum_settings(self.terms, read_roster(self._home / ROSTER_FILE) if self._real else None)

    @cached_property
    def signing_key(self) -> Ed25519PrivateKey:
        return load_signing_key(self._home) if self._real else simulated_key(self.client)

    @property
    def _real(self) -> bool:
        """Whether this is a site with records, a roster and a key of its own, rather than a part of a simulation."""
        return self.site.config.data.partition == "own" or (self._home / ROSTER_FILE).exists()

    @property
    def _home(self) -> Path:
        return self.site.account_folder(self.client)

    @property
    def honest(self) -> int:
        """How many sites add their share of the noise, whatever happens."""
        return honest_sites(self.terms.threshold, len(self.terms.sites), self.terms.colluders)

    @property
    def folder(self) -> Path:
        return self._home / FOLDER

    @property
    def path(self) -> Path:
        return self.folder / f"sum-{hashed_name(self.client)}-{self.settings.context.hex()[:24]}.json"

    @contextmanager
    def locked(self) -> Iterator[Remembered | None]:
        """Yield what the site remembers of this sum, while no other process takes part in it."""
        with locked(self.folder / ".lock"):
            yield Remembered.from_bytes(self.path.read_bytes(), self.settings) if self.path.exists() else None

    def begin(self) -> Remembered:
        """Draw the secrets of a sum that this site has not heard of."""
        state = new_site(self.settings, self.client)
        keys = state.begin(self.signing_key).to_bytes()
        delete_all_but_newest(self.folder, "sum-*.json", KEPT)
        delete_all_but_newest(self.folder, "masked-*.bin", KEPT)
        delete_all_but_newest(self.folder, "masked-*.gradient", KEPT)
        return Remembered(state, {"keys": ("", {self.client: keys.hex()})})

    def remember(self, known: Remembered) -> None:
        write_atomically(self.path, known.to_bytes(), private=True)

    def answer(self, order: DataOrder, make: Callable[[str], Steps], scale: float = 0.0) -> Masked:
        """Answer an order with a masked vector: the same one for the same order, whatever happens in between.

        Args:
            order: An order with the terms of this sum.
            make: Computes the vector for a request, to be entered in the account; it is another for every sum.
            scale: Of the noise that `make` adds; 0 for a vector that leaves without noise.

        Returns:
            The masked vector.
        """
        question = order_hash(order, _NOT_ASKED)
        self._check_terms(order, scale)
        with self.locked() as known:
            if known is None or not known.state.keys:
                raise OrderError(f"{self.client} has not shared its secrets in this sum")
            answered, path = known.answers.get("masked"), self.masked_path
            if answered is None:
                request = _own_hash(known.state)
                if scale == 0:
                    self._enter_unprotected(request)
                sealed = {name: array.tobytes() for name, array in order.sealed.items()}
                vector = make(SUMMED + request)
                state, masked = known.state.mask(sealed, vector)
                write_atomically(path, masked.tobytes(), private=True)
                self.remember(Remembered(state, {**known.answers, "masked": (question, {})}))
            elif answered[0] != question or not path.exists():
                raise OrderError(f"{self.client} has answered this sum to another order")
            masked = np.frombuffer(path.read_bytes(), np.uint64)
        account = BudgetStore(self._home, self.site.config.privacy).account()
        return Masked(self.client, account.to_json(), {"masked": masked})

    @property
    def masked_path(self) -> Path:
        return self.path.with_name(self.path.name.replace("sum-", "masked-")).with_suffix(".bin")

    def _check_terms(self, order: DataOrder, scale: float) -> None:
        terms = self.terms
        if terms.statistic != statistic(order) or not math.isclose(terms.scale, scale, rel_tol=1e-9):
            raise OrderError(
                f"the terms are for {terms.statistic!r} with noise of scale {terms.scale:.9g}; here they would be "
                f"{statistic(order)!r} with {scale:.9g}: do all sites have the same privacy settings?"
            )
        if isinstance(order, TrainOrder) and order.run != terms.run:
            raise OrderError(f"the order belongs to the run {order.run!r}, the terms to {terms.run!r}")

    def _enter_unprotected(self, request: str) -> None:
        """Enter a sum without noise, of which there is one for a statistic and a run; another is refused.

        A sum that the site has forgotten since has other keys, and so is another.
        """
        path, name = self.folder / UNPROTECTED, f"{self.client}|{self.terms.run}|{self.terms.statistic}"
        known: dict[str, str] = json.loads(path.read_bytes()) if path.exists() else {}
        if known.setdefault(name, request) != request:
            raise OrderError(
                f"{self.client} has taken part in a sum of {self.terms.statistic} in this run, without noise; the "
                "difference to a second one could be what one site sent"
            )
        write_atomically(path, json.dumps(known).encode(), private=True)


def take_part(order: SumOrder, site: Site) -> SumReply:
    """Answer one of the four messages around the masked vectors."""
    part, question = Participation.of(order, site), fingerprint_arrays(order.arrays) if order.step != "keys" else ""
    received = {name: array.tobytes() for name, array in order.arrays.items()}
    with part.locked() as found:
        if found is None and order.step != "keys":
            raise OrderError(f"{order.client} knows nothing of the sum that {order.step!r} belongs to")
        known = found or part.begin()
        if order.step not in known.answers:
            state, answer = _step(order.step, known.state, received, part)
            answered = (question, {name: value.hex() for name, value in answer.items()})
            known = Remembered(state, {**known.answers, order.step: answered})
            if state.finished:  # its secrets are gone, and so is what was sent under them
                known = replace(known, answers={order.step: answered})
                part.masked_path.unlink(missing_ok=True)
        if known is not found:
            part.remember(known)
    asked, told = known.answers[order.step]
    if asked != question:
        raise OrderError(f"{order.client} has answered {order.step!r} of this sum to another question")
    arrays = {name: np.frombuffer(bytes.fromhex(value), np.uint8) for name, value in told.items()}
    return SumReply(order.client, order.step, arrays)


def _step(
    step: str, state: SiteState, received: Mapping[str, bytes], part: Participation
) -> tuple[SiteState, dict[str, bytes]]:
    if step == "shares":
        return state.share([Keys.from_bytes(name, one) for name, one in received.items()])
    if step == "survivors":
        state, signature = state.agree(received, part.signing_key)
        return state, {part.client: signature}
    if step == "unmask":
        state, found = state.unmask(received)
        return state, found.to_bytes()
    raise OrderError("this sum is finished")


def _own_hash(state: SiteState) -> str:
    """Hash the sum with this site's keys in it, which are fresh in every sum: no other sum gets the same noise."""
    return hashlib.sha256(state.settings.context + state.keys[state.name].to_bytes()).hexdigest()

"""A run's privacy statement: what leaves a client, what of it is covered at which (ε,
δ), and what is not.

What a field of a reply tells is declared with the reply (`messages.replies`). Clients
keep the account (`privacy.account`): a reply that was lost on its way has cost its ε
all the same, and only the client knows. The server's ledger composes nothing; it
repeats the largest total that a client reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedaux.config.sections import FederationConfig
from fedaux.core.accounts import Account
from fedaux.core.results import RoundResult
from fedaux.messages import (
    Consent,
    Disclosure,
    Hello,
    Masked,
    Release,
    SumReply,
    Sums,
    Update,
    fields_of,
)
from fedaux.messages.declaration import Answered
from fedaux.messages.replies import COVERED, PUBLIC, SIDE_CHANNELS, SUMMED, UNPROTECTED
from fedaux.privacy.accounting import round_up
from fedaux.privacy.secure_sum import agreed_threshold
from fedaux.privacy.units import NEIGHBOURS


def disclosures(
    private_training: bool, sums: bool = False, secure: bool = False
) -> list[tuple[str, str]]:
    """List what leaves a client and how it is protected, uncovered fields first;
    `sums`: whether sums are sent.
    """
    kinds: list[type] = [Hello, Consent]
    if secure:
        kinds += [SumReply, Masked]
    else:
        kinds += [Release, Update]
        kinds += [Sums] if sums else []
    told = [*disclosed_by(*kinds), *SIDE_CHANNELS]
    protections = {
        item.what: item.private if private_training else item.plain for item in told
    }
    return [
        (what, protection.value)
        for listed in (UNPROTECTED, SUMMED, COVERED, PUBLIC)
        for what, protection in protections.items()
        if protection is listed
    ]


def disclosed_by(*kinds: type) -> list[Disclosure]:
    """Return what the fields of these replies tell, as they are declared."""
    marks = [field.marks for kind in kinds for field in fields_of(kind)]
    return [mark.disclosure for mark in marks if isinstance(mark, Answered)]


_MODELS = "local models, their losses and training times are sent without differential privacy"
_SUMS = "sums of clients' features are sent without differential privacy"
_DIFFERENCES = "the difference of two sums over different sites, of other rounds or runs, may be what one site sent"
_SUMMED_MODELS = (
    "the sums of the sites' models, sizes, losses and, where sites teach, weighted "
    f"logits are seen without differential privacy; {_DIFFERENCES}"
)
_SUMMED_SUMS = f"the sum of the sites' features is seen without differential privacy; {_DIFFERENCES}"
_SIZES = "the sizes of the clients' data are sent as they are"
_TIMING = "when replies arrive, and whether data could be read, can be seen"
_ELSEWHERE = "what is revealed about the same data outside these accounts adds to this"
_SEEDED = "the noise was drawn from a known seed, so anybody can remove it"
_MAX_NAMES = 5  # clients that a statement names


@dataclass(frozen=True)
class SumAssumption:
    """The assumption behind a run whose server sees sums only."""

    sites: int
    threshold: int
    colluders: int

    @classmethod
    def of(cls, federation: FederationConfig, sites: int) -> SumAssumption:
        return cls(
            sites, agreed_threshold(sites, federation.threshold), federation.colluders
        )

    @property
    def assumption(self) -> str:
        """The assumption in words."""
        others = (
            f" and up to {self.colluders} of {self.sites} sites together"
            if self.colluders
            else ""
        )
        return f"against the server{others}"


@dataclass(frozen=True, eq=False)
class Ledger:
    """The privacy ledger of a run. `trained` counts each client's rounds of private
    training.

    `unprotected_models` counts models that came without noise; `models` is False in a
    run that computes its head, and so sends no models.
    """

    releases: Mapping[str, Release]
    accounts: Mapping[str, Account]
    trained: Mapping[str, int] = field(default_factory=dict)
    unprotected_models: int = 0
    # clients that have not answered their last order
    unresponsive: Collection[str] = ()
    unprotected_sums: int = 0  # clients that sent sums of their features
    models: bool = True
    secure: SumAssumption | None = None

    @classmethod
    def of(
        cls,
        releases: Mapping[str, Release],
        accounts: Mapping[str, Account],
        unresponsive: Collection[str],
        history: Sequence[RoundResult],
        unprotected_sums: int = 0,
        models: bool = True,
        secure: SumAssumption | None = None,
    ) -> Ledger:
        """Make the ledger from the parts of a run's state."""
        trained = Counter(
            client for result in history for client in result.private_training
        )
        unprotected = sum(result.unprotected_models for result in history)
        return cls(
            releases,
            accounts,
            trained,
            unprotected,
            unresponsive,
            unprotected_sums,
            models,
            secure,
        )

    @property
    def clients(self) -> list[str]:
        """Clients that sent anything under noise, in alphabetical order."""
        return sorted({*self.releases, *self.trained})

    @cached_property
    def _accounts(self) -> list[Account]:
        """The accounts of `clients`, unsorted: sorting them each round would take most
        of the time.
        """
        return [self.accounts[client] for client in {*self.releases, *self.trained}]

    @cached_property
    def unsafe(self) -> bool:
        """Whether any noise came from a known seed, so that nothing is private."""
        return any(release.unsafe for release in self.releases.values()) or math.isinf(
            self.max_epsilon
        )

    @property
    def models_covered(self) -> bool:
        return bool(self.trained) and not self.unprotected_models

    @property
    def _unprotected(self) -> list[str]:
        """The kinds of data that were sent without noise."""
        models = [self._model_text] if self.models and not self.models_covered else []
        return [*models, *([self._sums_text] if self.unprotected_sums else [])]

    @property
    def _model_text(self) -> str:
        return _SUMMED_MODELS if self.secure else _MODELS

    @property
    def _sums_text(self) -> str:
        return _SUMMED_SUMS if self.secure else _SUMS

    @property
    def _always_seen(self) -> list[str]:
        """What is seen of clients in every run."""
        return [_TIMING] if self.secure else [_SIZES, _TIMING]

    def epsilon(self, client: str) -> float:
        """The total that the client last reported."""
        return self.accounts[client].epsilon

    @property
    def max_epsilon_client(self) -> str:
        """The client that reported the largest total; "" without any."""
        return max(self.clients, key=self.epsilon, default="")

    @cached_property
    def max_epsilon(self) -> float:
        """The largest total that any client reported; 0 without any."""
        return max((account.epsilon for account in self._accounts), default=0.0)

    @property
    def delta(self) -> float:
        """The largest δ at which any client stated its total."""
        return max((account.delta for account in self._accounts), default=1e-5)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return (client, releases, rounds of private training, reported total ε), the
        largest first.
        """
        return [
            (
                client,
                "1" if client in self.releases else "–",
                str(self.trained.get(client, "–")),
                round_up(self.epsilon(client)),
            )
            for client in sorted(
                self.clients, key=lambda client: (-self.epsilon(client), client)
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the statement in machine-readable parts; ε and δ are the largest that
        a client reported.
        """
        safe = bool(self.clients) and not self.unsafe
        covered = {
            self._released: safe and bool(self.releases),
            "local models": safe and self.models_covered,
        }
        limits = {
            _SEEDED: self.unsafe,
            self._model_text: self.models and not covered["local models"],
        }
        limits |= {self._sums_text: self.unprotected_sums > 0} | dict.fromkeys(
            self._always_seen, True
        )
        limits |= {_ELSEWHERE: any(covered.values())}
        return {
            "statement": self.statement(),
            "epsilon": self.max_epsilon if any(covered.values()) else None,
            "delta": self.delta if any(covered.values()) else None,
            "neighbours": self._neighbours(),
            "covered": [what for what, applies in covered.items() if applies],
            "not_covered": [what for what, applies in limits.items() if applies],
            "assumption": self.secure.assumption
            if self.secure
            else "against the server and all sites together",
            "crosses": [
                {"what": what, "protection": how} for what, how in self._crosses()
            ],
            # what a run's models are made of, beside sizes
            "weights_covered": safe and not self._unprotected,
        }

    def _crosses(self) -> list[tuple[str, str]]:
        return disclosures(
            self.models_covered, self.unprotected_sums > 0, self.secure is not None
        )

    def summary(self) -> str:
        """Return the statement in one line; "" if nothing was released under noise."""
        if self.unsafe:
            return "NOT PRIVATE, seeded noise"
        if not self._accounts:
            return ""
        facts = f"ε = {round_up(self.max_epsilon)}, δ = {self.delta:g}, {len(self._accounts)} clients"
        return f"{facts}: {self.coverage}"

    @property
    def coverage(self) -> str:
        """What noise covers of what clients send, in a few words."""
        if self.models:
            what = self._released.removeprefix("certainty ")
            return (
                f"{what} and models"
                if self.models_covered
                else f"{what} only, models are not covered"
            )
        return (
            "noisy sums only, not the others"
            if self.unprotected_sums
            else "noisy sums, which the head is made of"
        )

    def short(self) -> tuple[str, str]:
        """Return the statement in two lines for a terminal: what noise protects, and
        what it does not.
        """
        if self.unsafe:
            return (
                "NOT PRIVATE: the noise was drawn from a known seed.",
                "Nothing is protected.",
            )
        covered = [
            *([self._released.removeprefix("certainty ")] if self.releases else []),
            *(["models"] if self.models_covered else []),
        ]
        what = " and ".join(covered).capitalize()
        against = f", as a secure sum {self.secure.assumption}" if self.secure else ""
        first = (
            f"{what}: ε = {round_up(self.max_epsilon)}, δ = {self.delta:g} per "
            f"client{against}."
            if covered
            else ""
        )
        open_ = [*(["models"] if self.models and not self.models_covered else [])]
        open_ += ["sums of features"] if self.unprotected_sums else []
        if open_:
            how = (
                "seen as sums over the sites, without noise"
                if self.secure
                else "not protected"
            )
            return (
                first or "Nothing was sent under noise.",
                f"{' and '.join(open_).capitalize()} are {how}.",
            )
        rest = "Times" if self.secure else "Sizes of data and times"
        return (
            first or "Nothing was sent under noise.",
            f"{rest} of replies are not protected.",
        )

    def statement(self) -> str:
        """Return the statement as one self-contained paragraph that is explicit about
        what it does not cover.
        """
        if self.unsafe:
            return "NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
        if not self.clients:
            rest = "; ".join([*self._unprotected, *self._always_seen])
            return (
                f"Nothing was released under differential privacy. Not covered: {rest}."
            )
        if not self.releases and not self.models_covered:
            rest = "; ".join([*self._unprotected, *self._always_seen])
            return f"Nothing was released under noise. Not covered: {rest}."
        covered = [
            *([self._released] if self.releases else []),
            *(["local models"] if self.models_covered else []),
        ]
        together = "together " if len(covered) > 1 else ""
        against = f", as a secure sum, {self.secure.assumption}" if self.secure else ""
        rest = "; ".join([*self._unprotected, *self._always_seen, _ELSEWHERE])
        return (
            f"The {' and the '.join(covered)} of this run are "
            f"{together}({round_up(self.max_epsilon)}, {self.delta:g})-differentially "
            f"private for {' or '.join(self._neighbours())}{against}. Each of "
            f"{len(self.clients)} clients keeps its own account of everything that it "
            "ever sent under noise, which comes from the operating system; the largest "
            f"total is that of {self.max_epsilon_client}.{self._unresponsive()} Not "
            f"covered: {rest}."
        )

    @property
    def _released(self) -> str:
        """Releases score teachers, or are all that a head is made of; the server sees
        their sum in a secure one.
        """
        scores = (self.models or self.unprotected_sums) and not self.secure
        return "certainty scores" if scores else "noisy sums"

    def _neighbours(self) -> list[str]:
        kinds = {
            (self.accounts[client].adjacency, self.accounts[client].unit)
            for client in self.clients
        }
        return [NEIGHBOURS[kind] for kind in sorted(kinds)]

    def _unresponsive(self) -> str:
        names = sorted(self.unresponsive)
        if not names:
            return ""
        shown = ", ".join(names[:_MAX_NAMES]) + (
            f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        )
        return (
            f" {shown} did not answer the last order, and may have spent more than "
            "could be reported; `fedaux privacy report --vault` says so at their sites."
        )

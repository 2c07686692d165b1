"""A run's privacy statement: what leaves a client, what of it is covered at which (ε,
δ), and what is not.

What a field of a reply tells is declared with the reply (`messages.replies`). Clients
keep the account (`privacy.account`): a reply that was lost on its way has cost its ε
all the same, and only the client knows. The server's ledger composes nothing. It
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
    Counts,
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
from fedaux.messages.replies import (
    COVERED,
    PUBLIC,
    SCORES,
    SIDE_CHANNELS,
    SUMMED,
    UNPROTECTED,
)
from fedaux.privacy.accounting import round_up
from fedaux.privacy.secure_sum import agreed_threshold
from fedaux.privacy.units import NEIGHBOURS


def disclosures(
    private_training: bool,
    sums: bool = False,
    secure: bool = False,
    looks: bool = False,
    models: bool = True,
) -> list[tuple[str, str]]:
    """List what leaves a client and how it is protected, uncovered fields first.
    `sums`: whether sums are sent. `looks`: whether held-out records are counted.
    `models`: whether models are sent.
    """
    kinds: list[type] = [Hello, Consent]
    if secure:
        kinds += [SumReply, Masked]
    else:
        kinds.append(Release)
        if models:
            kinds.append(Update)
        if sums:
            kinds.append(Sums)
        if looks:
            kinds.append(Counts)
    protections = {}
    for disclosure in [*disclosed_by(*kinds), *SIDE_CHANNELS]:
        protection = disclosure.private if private_training else disclosure.plain
        protections[disclosure.what] = protection
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


_MODELS = (
    "local models, their losses and training times are sent without differential "
    "privacy"
)
_SUMS = "sums of clients' features are sent without differential privacy"
_DIFFERENCES = (
    "the difference of two sums over different sites, of other rounds or runs, may be "
    "what one site sent"
)
_SUMMED_MODELS = (
    "the sums of the sites' models, sizes, losses and, where sites teach, weighted "
    f"logits are seen without differential privacy, and {_DIFFERENCES}"
)
_SUMMED_SUMS = (
    "the sum of the sites' features is seen without differential privacy, and "
    f"{_DIFFERENCES}"
)
_COUNTS = "counts of held-out records"
_SIZES = "the sizes of the clients' data are sent as they are"
_TIMING = "when replies arrive, and whether data could be read, can be seen"
_ELSEWHERE = "what is revealed about the same data outside these accounts adds to this"
_SEEDED = "the noise was drawn from a known seed, so anyone can remove it"
_MAX_NAMES = 5  # clients that a statement names


@dataclass(frozen=True)
class SumAssumption:
    """The assumption behind a run whose server sees sums only."""

    sites: int
    threshold: int
    colluders: int

    @classmethod
    def of(cls, federation: FederationConfig, sites: int) -> SumAssumption:
        threshold = agreed_threshold(sites, federation.threshold)
        return cls(sites, threshold, federation.colluders)

    @property
    def assumption(self) -> str:
        """The assumption in words."""
        if not self.colluders:
            return "against the server"
        return (
            f"against the server and up to {self.colluders} of {self.sites} sites "
            "together"
        )


@dataclass(frozen=True, eq=False)
class Ledger:
    """The privacy ledger of a run. `trained` counts each client's rounds of private
    training.

    `unprotected_models` counts models that came without noise. `models` is False in a
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
    # clients that have counted held-out records
    looked: Collection[str] = ()

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
        looked: Collection[str] = (),
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
            looked,
        )

    @property
    def _noisy(self) -> set[str]:
        """Clients that sent anything under noise."""
        return {*self.releases, *self.trained, *self.looked}

    @property
    def clients(self) -> list[str]:
        """Clients that sent anything under noise, in alphabetical order."""
        return sorted(self._noisy)

    @cached_property
    def _accounts(self) -> list[Account]:
        """The accounts of `clients`, unsorted: sorting them each round would take most
        of the time.
        """
        return [self.accounts[client] for client in self._noisy]

    @cached_property
    def unsafe(self) -> bool:
        """Whether any noise came from a known seed, so that nothing is private."""
        if any(release.unsafe for release in self.releases.values()):
            return True
        return math.isinf(self.max_epsilon)

    @property
    def models_covered(self) -> bool:
        return bool(self.trained) and not self.unprotected_models

    @property
    def _models_open(self) -> bool:
        """Whether models were sent without noise."""
        return self.models and not self.models_covered

    @property
    def _sums_open(self) -> bool:
        """Whether sums of features were sent without noise."""
        return self.unprotected_sums > 0

    @property
    def _unprotected(self) -> list[str]:
        """The kinds of data that were sent without noise."""
        return _applicable(
            {self._models_seen: self._models_open, self._sums_seen: self._sums_open}
        )

    @property
    def _models_seen(self) -> str:
        return _SUMMED_MODELS if self.secure else _MODELS

    @property
    def _sums_seen(self) -> str:
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
        """The client that reported the largest total, or "" without any."""
        return max(self.clients, key=self.epsilon, default="")

    @cached_property
    def max_epsilon(self) -> float:
        """The largest total that any client reported, or 0 without any."""
        return max((account.epsilon for account in self._accounts), default=0.0)

    @property
    def delta(self) -> float:
        """The largest δ at which any client stated its total."""
        return max((account.delta for account in self._accounts), default=1e-5)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return (client, releases, rounds of private training, reported total ε), the
        largest first.
        """
        rows = []
        # `clients` are in alphabetical order, and sorting keeps it where totals are equal
        for client in sorted(self.clients, key=self.epsilon, reverse=True):
            releases = "1" if client in self.releases else "–"
            rounds = str(self.trained.get(client, "–"))
            rows.append((client, releases, rounds, round_up(self.epsilon(client))))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the statement in machine-readable parts. ε and δ are the largest that
        a client reported.
        """
        safe = bool(self.clients) and not self.unsafe
        models_covered = safe and self.models_covered
        covered = _applicable(
            {
                self._released: safe and bool(self.releases),
                "local models": models_covered,
                _COUNTS: safe and bool(self.looked),
            }
        )
        not_covered = _applicable(
            {
                _SEEDED: self.unsafe,
                self._models_seen: self.models and not models_covered,
                self._sums_seen: self._sums_open,
                **dict.fromkeys(self._always_seen, True),
                _ELSEWHERE: bool(covered),
            }
        )
        assumption = "against the server and all sites together"
        if self.secure:
            assumption = self.secure.assumption
        crosses = disclosures(
            self.models_covered,
            self._sums_open,
            self.secure is not None,
            bool(self.looked),
            self.models,
        )
        return {
            "statement": self.statement(),
            "epsilon": self.max_epsilon if covered else None,
            "delta": self.delta if covered else None,
            "neighbours": self._neighbours(),
            "units": sorted({account.unit for account in self._accounts}),
            "adjacencies": sorted({account.adjacency for account in self._accounts}),
            "covered": covered,
            "not_covered": not_covered,
            "assumption": assumption,
            "crosses": [
                {
                    "what": self._released if what == SCORES.what else what,
                    "protection": protection,
                }
                for what, protection in crosses
            ],
            # what a run's models are made of, next to sizes
            "weights_covered": safe and not self._unprotected,
        }

    def summary(self) -> str:
        """Return the statement in one line, or "" if nothing was released under noise."""
        if self.unsafe:
            return "NOT PRIVATE, seeded noise"
        if not self._accounts:
            return ""
        clients = f"{len(self._accounts)} clients"
        return f"{self._budget}, {clients}: {self.coverage}"

    @property
    def _budget(self) -> str:
        return f"ε = {round_up(self.max_epsilon)}, δ = {self.delta:g}"

    @property
    def coverage(self) -> str:
        """What noise covers of what clients send, in a few words."""
        covered = " and ".join(self._covered_in_short)
        if self._models_open:
            return f"{covered} only, models are not covered"
        if self.models:
            return covered
        if self._sums_open:
            return f"{covered} only, not the others"
        head = "noisy sums, which the head is made of"
        return f"{head}, and {_COUNTS}" if self.looked else head

    @property
    def _covered_in_short(self) -> list[str]:
        """What noise covers, in a word or two each."""
        return _applicable(
            {
                self._released_in_short: bool(self.releases),
                "models": self.models_covered,
                _COUNTS: bool(self.looked),
            }
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
        return self._protected_line(), self._unprotected_line()

    def _protected_line(self) -> str:
        covered = self._covered_in_short
        if not covered:
            return "Nothing was sent under noise."
        what = " and ".join(covered).capitalize()
        against = f", as a secure sum {self.secure.assumption}" if self.secure else ""
        return f"{what}: {self._budget} per client{against}."

    def _unprotected_line(self) -> str:
        unprotected = _applicable(
            {"models": self._models_open, "sums of features": self._sums_open}
        )
        what = " and ".join(unprotected).capitalize()
        if unprotected and self.secure:
            return f"{what} are seen as sums over the sites, without noise."
        if unprotected:
            return f"{what} are not protected."
        if self.secure:
            return "Times of replies are not protected."
        return "Sizes of data and times of replies are not protected."

    def statement(self) -> str:
        """Return the statement as one self-contained paragraph that is explicit about
        what it does not cover.
        """
        if self.unsafe:
            return (
                "NOT PRIVATE: the noise was drawn from a known seed "
                "(privacy.unsafe_seed), so anyone can remove it."
            )
        limits = [*self._unprotected, *self._always_seen]
        rest = "; ".join(limits)
        if not self.clients:
            return (
                f"Nothing was released under differential privacy. Not covered: {rest}."
            )
        covered = _applicable(
            {
                self._released: bool(self.releases),
                "local models": self.models_covered,
                _COUNTS: bool(self.looked),
            }
        )
        if not covered:
            return f"Nothing was released under noise. Not covered: {rest}."
        what = " and the ".join(covered)
        together = "together " if len(covered) > 1 else ""
        neighbours = " or ".join(self._neighbours())
        against = f", as a secure sum, {self.secure.assumption}" if self.secure else ""
        rest = "; ".join([*limits, _ELSEWHERE])
        return (
            f"The {what} of this run are "
            f"{together}({round_up(self.max_epsilon)}, {self.delta:g})-differentially "
            f"private for {neighbours}{against}. Each of "
            f"{len(self.clients)} clients keeps its own account of everything that it "
            "ever sent under noise, which comes from the operating system. The largest "
            f"total is that of {self.max_epsilon_client}.{self._unresponsive()} Not "
            f"covered: {rest}."
        )

    @property
    def _released(self) -> str:
        """Releases score teachers, or are all that a head is made of. The server sees
        their sum in a secure one.
        """
        scores = (self.models or self.unprotected_sums) and not self.secure
        return "certainty scores" if scores else "noisy sums"

    @property
    def _released_in_short(self) -> str:
        return self._released.removeprefix("certainty ")

    def _neighbours(self) -> list[str]:
        kinds = {(account.adjacency, account.unit) for account in self._accounts}
        return [NEIGHBOURS[kind] for kind in sorted(kinds)]

    def _unresponsive(self) -> str:
        names = sorted(self.unresponsive)
        if not names:
            return ""
        shown = ", ".join(names[:_MAX_NAMES])
        if len(names) > _MAX_NAMES:
            shown += f" and {len(names) - _MAX_NAMES} more"
        return (
            f" {shown} did not answer the last order, and may have spent more than "
            "could be reported. `fedaux privacy report --vault` shows this at their "
            "sites."
        )


def _applicable(conditions: Mapping[str, bool]) -> list[str]:
    """Return what applies, in the order of the mapping."""
    return [what for what, applies in conditions.items() if applies]

"""What the clients say they have spent, in one statement: what is covered, by how much, and in words what is not.

Clients keep the account (`privacy.budget`): a reply that was lost on its way has been paid for all the same, and only
the client knows. The server's ledger adds nothing up; it repeats the largest total that it was told, and by whom.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaux.core.messages import Account, Release
from fedaux.privacy.accounting import round_up
from fedaux.privacy.budget import NEIGHBOURS
from fedaux.privacy.crossing import crossings

_MODELS = "local models, their losses and training times are sent without differential privacy"
_SIZES = "the sizes of the clients' data are sent as they are"
_TIMING = "when replies arrive, and whether data could be read, can be seen"
_ELSEWHERE = "what is revealed about the same data outside these accounts adds to this"
_SEEDED = "the noise was drawn from a known seed, so anybody can remove it"
_NAMED = 5  # clients that a statement names


@dataclass(frozen=True, eq=False)
class Ledger:
    """`trained` counts each client's rounds of private training, `bare` the models that came without noise."""

    releases: Mapping[str, Release]
    accounts: Mapping[str, Account]
    trained: Mapping[str, int] = field(default_factory=dict)
    bare: int = 0
    unheard: Collection[str] = ()  # clients that have not answered their last order

    @classmethod
    def of(
        cls,
        releases: Mapping[str, Release],
        accounts: Mapping[str, Account],
        unheard: Collection[str],
        history: Sequence[Mapping[str, Any]],
    ) -> Ledger:
        """From a run's state: its history has an entry for every round (`Round.finish`)."""
        trained: dict[str, int] = {}
        bare = 0
        for record in history:
            told = record["spent"]  # empty where nobody trained privately
            private = [client for client, facts in told.items() if facts[0] > 0]
            bare += len(told) - len(private) if told else record["clients"]
            trained |= {client: trained.get(client, 0) + 1 for client in private}
        return cls(releases, accounts, trained, bare, unheard)

    @property
    def clients(self) -> list[str]:
        """Who revealed anything under noise, in alphabetical order."""
        return sorted({*self.releases, *self.trained})

    @property
    def unsafe(self) -> bool:
        """Whether any noise came from a known seed, so that nothing is private."""
        seeded = any(one.unsafe for one in self.releases.values())
        return seeded or any(math.isinf(self.epsilon(client)) for client in self.clients)

    @property
    def models_covered(self) -> bool:
        return bool(self.trained) and not self.bare

    def epsilon(self, client: str) -> float:
        """What the client last said that everything it ever sent under noise costs."""
        return self.accounts[client].epsilon

    @property
    def spender(self) -> str:
        """Who reported the largest total; "" where nobody revealed anything."""
        return max(self.clients, key=self.epsilon, default="")

    @property
    def worst(self) -> float:
        """The largest total that any client reported; 0 without any."""
        return self.epsilon(self.spender) if self.clients else 0.0

    @property
    def delta(self) -> float:
        """The largest δ at which any client stated its total."""
        return max((self.accounts[client].delta for client in self.clients), default=1e-5)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """(client, releases, rounds of private training, ε of everything as it reported it), the largest first."""
        return [
            (
                client,
                "1" if client in self.releases else "–",
                str(self.trained.get(client, "–")),
                round_up(self.epsilon(client)),
            )
            for client in sorted(self.clients, key=lambda client: (-self.epsilon(client), client))
        ]

    def facts(self) -> dict[str, Any]:
        """The statement once more, in parts that a program can read; ε and δ are those of the worst client."""
        safe = bool(self.clients) and not self.unsafe
        covered = {"certainty scores": safe and bool(self.releases), "local models": safe and self.models_covered}
        limits = {_SEEDED: self.unsafe, _MODELS: not covered["local models"], _SIZES: True, _TIMING: True}
        limits |= {_ELSEWHERE: any(covered.values())}
        return {
            "statement": self.statement(),
            "epsilon": self.worst if any(covered.values()) else None,
            "delta": self.delta if any(covered.values()) else None,
            "neighbours": self._neighbours(),
            "covered": [what for what, is_so in covered.items() if is_so],
            "not_covered": [what for what, is_so in limits.items() if is_so],
            "crosses": [{"what": what, "protection": how} for what, how in crossings(self.models_covered)],
            "weights_covered": covered["local models"],  # a run's models are made of local models, scores and sizes
        }

    def statement(self) -> str:
        """True as it stands, and explicit about what it leaves out."""
        if self.unsafe:
            return "NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
        if not self.clients:
            return f"Nothing was released under differential privacy. Not covered: {_MODELS}; {_SIZES}; {_TIMING}."
        if not self.releases and not self.models_covered:
            return f"No certainty scores were released. Not covered: {_MODELS}; {_SIZES}; {_TIMING}."
        covered = [*(["certainty scores"] if self.releases else []), *(["local models"] if self.models_covered else [])]
        together = "together " if len(covered) > 1 else ""
        rest = [*([] if self.models_covered else [_MODELS]), _SIZES, _TIMING, _ELSEWHERE]
        return (
            f"The {' and the '.join(covered)} of this run are {together}({round_up(self.worst)}, {self.delta:g})-"
            f"differentially private for {' or '.join(self._neighbours())}. Each of {len(self.clients)} clients keeps "
            f"its own account of everything that it ever sent under noise, which comes from the operating system; the "
            f"largest total is that of {self.spender}.{self._unheard()} Not covered: {'; '.join(rest)}."
        )

    def _neighbours(self) -> list[str]:
        kinds = {(self.accounts[client].adjacency, self.accounts[client].unit) for client in self.clients}
        return [NEIGHBOURS[kind] for kind in sorted(kinds)]

    def _unheard(self) -> str:
        names = sorted(self.unheard)
        if not names:
            return ""
        shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        return (
            f" {shown} did not answer the last order, and may have spent more than could be reported; "
            "`fedaux privacy report --vault` says so at their sites."
        )

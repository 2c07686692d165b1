"""What was revealed under which noise, what that costs together, and in words what it does not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaux.exchange import Release
from fedaux.privacy.accounting import Spend, total_epsilon
from fedaux.privacy.bounded import REACH

_NEIGHBOURS = {
    "replace-one": "one record of a client exchanged for any other",
    "add-remove": "one record of a client added or removed, at a declared size",
}
_MODELS = "local models and their losses are sent without differential privacy"
_SIZES = "the sizes of the clients' data are sent as they are"
_ELSEWHERE = "what other runs reveal about the same data adds to this"
_SEEDED = "the noise on the certainty scores was drawn from a known seed, so anybody can remove it"


@dataclass(frozen=True, eq=False)
class Ledger:
    """Releases, and for each client what its private training spent; `bare` counts models that came without noise."""

    releases: Mapping[str, Release]
    training: Mapping[str, tuple[Spend, ...]] = field(default_factory=dict)
    bare: int = 0

    @classmethod
    def of(cls, releases: Mapping[str, Release], history: Sequence[Mapping[str, Any]]) -> Ledger:
        """From a run's releases and its history (`Gathering.finish`)."""
        training: dict[str, tuple[Spend, ...]] = {}
        bare = 0
        for record in history:
            told = record["spent"]  # empty where nobody trained privately
            private = {client: facts for client, facts in told.items() if facts[0] > 0}
            bare += len(told) - len(private) if told else record["clients"]
            for client, (noise, rate, steps) in private.items():
                training[client] = (*training.get(client, ()), Spend(noise, rate, int(steps)))
        return cls(releases, training, bare)

    @property
    def clients(self) -> list[str]:
        """Who revealed anything under noise, in alphabetical order."""
        return sorted({*self.releases, *self.training})

    @property
    def unsafe(self) -> bool:
        """Whether any noise came from a known seed, so that nothing is private."""
        return any(one.unsafe for one in self.releases.values())

    @property
    def delta(self) -> float:
        """The δ at which totals are stated: the largest that any release was promised."""
        return max((one.delta for one in self.releases.values()), default=1e-5)

    def adjacency(self, client: str) -> str:
        """Which data sets are neighbours for this client: `replace-one` or `add-remove`."""
        return self.releases[client].adjacency if client in self.releases else "replace-one"

    def scoring(self, client: str) -> tuple[Spend, ...]:
        """A release as the accountant counts it: noise in units of one record's vector."""
        if client not in self.releases:
            return ()
        one = self.releases[client]
        return (Spend(one.scale / one.sensitivity * REACH[one.adjacency]),)

    def epsilon(self, client: str) -> float:
        """Everything the client revealed under noise, composed."""
        spends = (*self.scoring(client), *self.training.get(client, ()))
        return total_epsilon(spends, self.delta, self.adjacency(client))

    @property
    def worst(self) -> float:
        """The ε of the statement, of the client that spent most: of its scores, or of all together; 0 without any."""
        if self.bare or not self.training:
            return max((one.epsilon for one in self.releases.values()), default=0.0)
        return max(self.epsilon(client) for client in self.clients)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """(client, scores, training, together, if the two were simply added), each an ε at `delta`."""
        found = []
        for client in self.clients:
            parts = [self.scoring(client), self.training.get(client, ())]
            alone = [total_epsilon(part, self.delta, self.adjacency(client)) for part in parts]
            scores, training = (f"{cost:.3f}" if part else "–" for part, cost in zip(parts, alone, strict=True))
            found.append((client, scores, training, f"{self.epsilon(client):.3f}", f"{sum(alone):.3f}"))
        return found

    def facts(self) -> dict[str, Any]:
        """The statement once more, in parts that a program can read; ε and δ are those of the worst client."""
        whole = bool(self.training) and not self.bare
        scores, models = bool(self.releases) and not self.unsafe, whole and not self.unsafe
        epsilon = None
        if models:
            epsilon = max(self.epsilon(client) for client in self.clients)
        elif scores:
            epsilon = max(one.epsilon for one in self.releases.values())
        limits = {_SEEDED: self.unsafe, _MODELS: not models, _SIZES: True, _ELSEWHERE: scores or models}
        return {
            "statement": self.statement(),
            "epsilon": epsilon,
            "delta": None if epsilon is None else self.delta,
            "adjacency": sorted({self.adjacency(client) for client in self.clients}),
            "covered": [what for what, is_so in (("certainty scores", scores), ("local models", models)) if is_so],
            "not_covered": [what for what, is_so in limits.items() if is_so],
            "weights_covered": models,  # the run's models are made of local models, scores and sizes alone
        }

    def statement(self) -> str:
        """True as it stands, and explicit about what it leaves out."""
        if self.unsafe:
            return "NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
        if not self.clients:
            return f"Nothing was released under differential privacy. Not covered: {_MODELS}; {_SIZES}."
        kinds = sorted({self.adjacency(client) for client in self.clients})
        neighbours = " or ".join(_NEIGHBOURS[kind] for kind in kinds)
        if self.bare or not self.training:
            return self._scores_only(neighbours)
        what = "The certainty scores and the local models" if self.releases else "The local models"
        return (
            f"{what} of this run are together ({self.worst:.3g}, {self.delta:g})-differentially private for "
            f"{neighbours}: {len(self.clients)} clients, composed by privacy loss distributions, noise from the "
            f"operating system. Not covered: {_SIZES}; {_ELSEWHERE}."
        )

    def _scores_only(self, neighbours: str) -> str:
        if not self.releases:
            return f"No certainty scores were released. Not covered: {_MODELS}; {_SIZES}."
        certificates = ", ".join(sorted({one.certificate for one in self.releases.values()}))
        return (
            f"The certainty scores of this run are ({self.worst}, {self.delta})-differentially private for "
            f"{neighbours}: {len(self.releases)} clients, one release each, noise from the operating system, "
            f"certificate {certificates}. Not covered: {_MODELS}; {_SIZES}; {_ELSEWHERE}."
        )

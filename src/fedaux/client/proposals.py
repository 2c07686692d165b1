"""The plan of a run as its owner reads it, with what would leave and at which cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaux.client.site import Site
from fedaux.config.schema import Config
from fedaux.config.sends import NOISY_COUNTS
from fedaux.messages import RunPlan
from fedaux.privacy.accounting import round_up


@dataclass(frozen=True)
class Proposal:
    """The plan of a run as its owner reads it."""

    plan: RunPlan
    facts: dict[str, Any] = field(hash=False)

    @property
    def id(self) -> str:
        return self.plan.hash

    @classmethod
    def of(cls, plan: RunPlan, words: Sequence[str], site: Site) -> Proposal:
        """Describe a plan: `words` is what would leave, and the site's own settings say
        at which cost.
        """
        releases = sum(ask.at_most for ask in plan.asks if ask.kind == "release")
        orders = [
            {"to": ask.kind, "at most": ask.at_most, **ask.facts} for ask in plan.asks
        ]
        secure_sum = "yes: the server sees sums over the sites"
        return cls(
            plan,
            {
                "asked by": site.server or "the server of this run",
                "run": plan.run,
                "method": plan.method,
                "rounds": plan.rounds,
                "leaves": cost_in_words(words, site.config, releases),
                "secure sum": secure_sum if plan.secure else "no",
                "words": sorted(words),
                "orders": orders,
            },
        )


def cost_in_words(words: Sequence[str], config: Config, releases: int = 1) -> str:
    """Return what would leave, with its ε where there is noise: rounded up, as every
    printed ε.

    Each of several `releases` costs ε: of other networks, or of a secure sum that is
    tried again.
    """
    privacy = config.privacy
    total = round_up(privacy.epsilon_budget)
    delta = f"δ = {privacy.delta:g}"
    costs = []
    for word in words:
        if word == "noisy sums":
            cost = f"noisy sums at ε = {round_up(privacy.epsilon)}"
            if releases > 1:
                cost += f", up to {releases} times, within a total of ε = {total}"
            costs.append(f"{cost}, {delta}")
        elif word == "noisy models":
            costs.append(f"noisy models within a total of ε = {total}, {delta}")
        elif word == NOISY_COUNTS:
            costs.append(f"{word} at ε = {round_up(privacy.look_epsilon)}, {delta}")
        else:
            costs.append(f"{word} WITHOUT noise")
    return " and ".join(costs)

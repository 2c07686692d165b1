"""What each method sends, what noise protects of it, what it needs, and when to take
it: for `fedaux methods`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedaux.config.methods import METHODS, Method, find_method

if TYPE_CHECKING:
    from fedaux.config.schema import Config

WHEN = {
    "private-head": "one exchange under ε, for any split: try this first",
    "fedavg": "clients with similar data, or many cheap rounds",
    "fedprox": "as FedAvg, if clients drift apart in long local training",
    "feddf": "several architectures, without noisy sums",
    "fedbe": "as FedDF, with a few clients per round",
    "fedaux": "few rounds, about one class per client, one or several architectures",
    "fedaux-scaffold": "twenty rounds or more, heads on a frozen extractor",
    "fedet": "several architectures, five rounds or more, without noisy sums",
    "fedavgm": "averaging whose accuracy swings from round to round",
    "fedadam": "averaging that needs adaptive steps at the server",
    "fedyogi": "as FedAdam, with slower growth of its steps",
    "fednova": "clients that train for very different numbers of steps",
    "scaffold": "uneven data and twenty rounds or more. Clients keep state",
    "feddyn": "as SCAFFOLD, with half of its traffic",
    "ridge": "one exchange, if the server may see sums of features",
    "discriminant": "as ridge, with few records of some classes",
    "class-means": "as ridge, with the fewest bytes",
}
"""When to take a method, by its name without +p."""


@dataclass(frozen=True)
class MethodFacts:
    """One method in the words of a user."""

    name: str
    label: str
    leaves: str  # what a client sends
    protected: str  # what of it has noise
    needs: str
    when: str


def facts_of(name: str) -> MethodFacts:
    """Describe a method of `METHODS`. Those with +p are described by the row without
    it.
    """
    method = METHODS[name]
    return MethodFacts(
        name,
        method.label,
        _leaves(name, method),
        _protected(method),
        _needs(method),
        WHEN[name],
    )


def reason(method: Method) -> str:
    """Say in plain words why a method may be ahead of others."""
    if method.sums:
        return (
            "it computes its head from sums of all clients' features, which leave the "
            "clients without protection"
        )
    if method.sends == "releases":
        return "it computes its head from noisy sums of all clients' features"
    if method.scores:
        return (
            "it weights each client's model by how much a public example looks like "
            "the client's data"
        )
    return (
        "its clients' models are combined with equal weights, and its settings suit "
        "these data"
    )


def protection(config: Config) -> str:
    """Say in a few words what of a client is under noise in a run, for a table."""
    budget = f"ε = {config.privacy.epsilon_budget:g}"
    if config.privacy.private_training:
        return f"models, {budget}"
    if find_method(config.method).sends == "releases":
        return f"all but sizes, {budget}"
    return f"scores, not models, {budget}" if config.releases else "nothing"


def all_facts() -> list[MethodFacts]:
    """Describe every method once: the one with +p differs only in its start."""
    return [facts_of(name) for name in METHODS if not name.endswith("+p")]


def _leaves(name: str, method: Method) -> str:
    sends = {
        "models": "model",
        "class-sums": "sums of features",
        "moments": "sums and second moments of features",
        "releases": "noisy sums",
    }[method.sends]
    extra = ["noisy sums"] if method.scores else []
    return ", ".join(
        [*extra, sends, *(["control variate"] if "scaffold" in name else [])]
    )


def _protected(method: Method) -> str:
    if method.sends == "releases":
        return "everything except the number of records, under ε"
    return "noisy sums, under ε" if method.scores else "nothing"


def _needs(method: Method) -> str:
    return (
        "public data"
        if method.distils or method.pretrained
        else "–"
        if not method.analytic
        else "public data (+p)"
    )

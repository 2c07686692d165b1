"""The methods as data: each is five choices, and the name of its hooks where five
choices cannot say it.

A row of your own works wherever a name does, as `module:attribute`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedaux.config.parsing import ConfigError, from_table, require
from fedaux.core.errors import UnknownNameError, import_attribute, unknown_name


@dataclass(frozen=True)
class Method:
    """One row of the method table.

    Attributes:
        label: The name for readers: FedAUX.
        pretrained: Start from the extractor pre-trained on unlabelled auxiliary data
            (P1), not from random weights.
        proximal: Add μ/2 ‖θ − θ_t‖² to the local loss (FedProx).
        teachers: The ensemble to distil: none, the clients, or the clients
            with their average and draws from a Gaussian (FedBE).
        weights: How much each teacher counts on each public example: all equally, by
            the client's release (FedAUX), or by the variance of the teacher's
            logits (Fed-ET), which needs no release.
        sends: What clients send: the models they train, or, once per client, what a
            head is computed from: sums of features per class, optionally with second
            moments, both unprotected, or their noisy releases.
        hooks: Whatever the other fields cannot express: a subclass of `fedaux.Hooks`,
            or `module:Class`. Its fields are the method's options, which
            `[method_options]` sets.
        defaults: Settings by dotted key that `Config.from_dict` takes where a table
            leaves them out.
    """

    label: str
    pretrained: bool = False
    proximal: bool = False
    teachers: Literal["none", "clients", "bayesian"] = "none"
    weights: Literal["uniform", "certainty", "variance"] = "uniform"
    sends: Literal["models", "class-sums", "moments", "releases"] = "models"
    hooks: str | type = ""
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def analytic(self) -> bool:
        """Whether the head is computed in closed form rather than trained."""
        return self.sends != "models"

    @property
    def sums(self) -> bool:
        """Whether the head is computed from sums of features, which are sent without
        noise.
        """
        return self.sends in SUM_KINDS

    @property
    def distils(self) -> bool:
        """Whether students learn from an ensemble (T3)."""
        return self.teachers != "none"

    @property
    def scores(self) -> bool:
        """Whether clients release certainty scores (P2, P3)."""
        return self.weights == "certainty"

    def make_hooks(self, options: Mapping[str, Any]) -> Any:
        """Return an instance of `hooks` with these options, or None if the method has
        none. Unknown options raise.
        """
        needs_head = (
            f"Cannot use the method {self.label}: it sends {self.sends}. Derive its "
            "hooks from AnalyticHead."
        )
        if not self.hooks:
            require(not self.sums, needs_head)
            require(
                not options,
                f"Cannot use method_options: {self.label} has no options. Delete "
                "[method_options], or --set method_options={}.",
            )
            return None
        cls = (
            self.hooks
            if isinstance(self.hooks, type)
            else _imported(self.hooks, "hooks", "class", type)
        )
        # every subclass of Hooks says whether
        computes_head: bool | None = getattr(cls, "computes_head", None)
        require(
            computes_head is not None,
            f"Cannot use the hooks of {self.label}: {cls.__name__} is no subclass of "
            "fedaux.Hooks. Derive it from fedaux.Hooks.",
        )
        require(not self.sums or bool(computes_head), needs_head)
        return from_table(cls, options, "method_options.")


# each includes those before it; none is protected
SUM_KINDS = ("class-sums", "moments")


def allowed_sums(agreed: str) -> tuple[str, ...]:
    """Return what a client may be asked for that has agreed to send one of `SUM_KINDS`:
    what that includes.
    """
    if agreed not in SUM_KINDS:
        return ()
    return SUM_KINDS[: SUM_KINDS.index(agreed) + 1]


_ROOM = "fedaux.methods"
_PLAIN = {
    "fedavg": Method("FedAvg"),
    "fedprox": Method("FedProx", proximal=True),
    "feddf": Method("FedDF", teachers="clients"),
    "fedbe": Method("FedBE", teachers="bayesian"),
}
_WEIGHTED = {"fedet": Method("FedET", teachers="clients", weights="variance")}
_HOOKED = {
    "fedavgm": Method("FedAvgM", hooks=f"{_ROOM}.fedavgm:FedAvgM"),
    "fedadam": Method("FedAdam", hooks=f"{_ROOM}.fedadam:FedAdam"),
    "fedyogi": Method("FedYogi", hooks=f"{_ROOM}.fedadam:FedYogi"),
    "fednova": Method("FedNova", hooks=f"{_ROOM}.fednova:FedNova"),
    "scaffold": Method("SCAFFOLD", hooks=f"{_ROOM}.scaffold:Scaffold"),
    "feddyn": Method("FedDyn", hooks=f"{_ROOM}.feddyn:FedDyn"),
}
_ANALYTIC = {
    "ridge": Method("Ridge", sends="moments", hooks=f"{_ROOM}.analytic_heads:Ridge"),
    "discriminant": Method(
        "Discriminant", sends="moments", hooks=f"{_ROOM}.analytic_heads:Discriminant"
    ),
    "class-means": Method(
        "Class means", sends="class-sums", hooks=f"{_ROOM}.analytic_heads:ClassMeans"
    ),
}


def _pretrained(rows: Mapping[str, Method]) -> dict[str, Method]:
    return {
        f"{key}+p": replace(row, label=f"{row.label}+P", pretrained=True)
        for key, row in rows.items()
    }


_PAPER = {
    **_PLAIN,
    **_pretrained(_PLAIN),
    "fedaux": Method(
        "FedAUX", pretrained=True, teachers="clients", weights="certainty"
    ),
}
PAPER_METHODS = tuple(_PAPER)
"""The nine methods of the paper: fedavg, fedprox, feddf, fedbe, each also with +p, and
fedaux."""

_CORRECTED = {
    "fedaux-scaffold": replace(
        _PAPER["fedaux"], label="FedAUX-SCAFFOLD", hooks=_HOOKED["scaffold"].hooks
    )
}
_PRIVATE = {
    "private-head": Method(
        "Private head",
        pretrained=True,
        sends="releases",
        defaults=(
            ("rounds", 1),
            ("head_only", True),
            ("aux.negatives", 0.9),
            ("privacy.scorer", "class-moments"),
            ("privacy.embedding_dim", 0),
        ),
    )
}
_MORE = {**_WEIGHTED, **_HOOKED, **_ANALYTIC}
METHODS: dict[str, Method] = {
    **_PRIVATE,
    **_PAPER,
    **_CORRECTED,
    **_MORE,
    **_pretrained(_MORE),
}
"""All methods by the name that `method` takes: private-head, those of the paper,
fedaux-scaffold, fedet, fedavgm, fedadam, fedyogi, fednova, scaffold, feddyn, ridge,
discriminant, class-means, each also with +p."""


def method_name(name: str) -> str:
    """Return the name as `METHODS` spells it: fedaux for FedAUX. Other names, such as
    `module:attribute`, are kept.
    """
    return name.lower() if name.lower() in METHODS else name


def find_method(name: str) -> Method:
    """Return a row of `METHODS`, whatever the case of the name, or the user's own
    `module:attribute`.
    """
    if method_name(name) in METHODS:
        return METHODS[method_name(name)]
    require(
        name.lower() not in ("closed-form", "closed-form+p"),
        f"Cannot find the head {name}: it is private-head now, with or without +p. "
        "Write that name instead.",
    )
    if ":" not in name:
        raise ConfigError(
            str(unknown_name("method", name, [*METHODS, "module:attribute"]))
        )
    row: Method = _imported(name, "method", "Method", Method)
    return row


def _imported(name: str, what: str, noun: str, kind: type) -> Any:
    try:
        return import_attribute(name, what, noun, lambda value: isinstance(value, kind))
    except UnknownNameError as error:
        raise ConfigError(str(error)) from error

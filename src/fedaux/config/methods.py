"""The methods as data: each is four choices (start, local objective, teachers, weights), so a new one is a new row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Method:
    """One row of the method table.

    pretrained: start from the extractor trained on auxiliary data without labels (P1), else from random weights.
    proximal: add μ/2 ‖θ − θ_t‖² to the local loss (FedPROX).
    teachers: who is distilled: nobody; the clients; or the clients, their average and draws from a Gaussian (FedBE).
    weights: how much each teacher counts on each public example.
    """

    label: str
    pretrained: bool = False
    proximal: bool = False
    teachers: Literal["none", "clients", "bayesian"] = "none"
    weights: Literal["uniform", "certainty"] = "uniform"

    @property
    def distils(self) -> bool:
        """Whether students learn from an ensemble (T3)."""
        return self.teachers != "none"

    @property
    def scores(self) -> bool:
        """Whether clients release certainty scores (P2, P3)."""
        return self.weights == "certainty"


_PLAIN = {
    "fedavg": Method("FedAVG"),
    "fedprox": Method("FedPROX", proximal=True),
    "feddf": Method("FedDF", teachers="clients"),
    "fedbe": Method("FedBE", teachers="bayesian"),
}
_PRETRAINED = {f"{key}+p": replace(row, label=f"{row.label}+P", pretrained=True) for key, row in _PLAIN.items()}

METHODS: dict[str, Method] = {
    **_PLAIN,
    **_PRETRAINED,
    "fedaux": Method("FedAUX", pretrained=True, teachers="clients", weights="certainty"),
}
"""All methods by the name that `method` takes: fedavg, fedprox, feddf, fedbe, each also with +p; fedaux."""

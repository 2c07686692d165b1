"""Three architectures side by side on CIFAR-10, each at a third of the clients: averages cannot cross, an ensemble can.

    fedaux prepare studies/mixed.toml                              # the extractors of the two smaller ones
    python -m studies.mixed                                        # heads; minutes of one core
    python -m studies.mixed --cases "whole networks" --splits 2    # half an hour of one core an arm

Accuracy is the mean over the three students. studies/tuned.py says how a study runs, stops and goes on.
"""

from __future__ import annotations

from studies.heads import ARMS, BASE, LISTS
from studies.networks import SMALL
from studies.tuned import Design, main

KEPT = (
    "ridge",
    "discriminant",
    "closed form, ε = 1",
    "FedAVG+P",
    "SCAFFOLD+P",
    "FedDF+P",
    "FedET+P",
    "FedAUX, ε = 1",
    "FedAUX, ε = 1, closed-form start",
)
DESIGN = Design(
    name="mixed-cifar10",
    config="studies/mixed.toml",
    base=BASE,
    cases={"heads": (), "whole networks": (*SMALL, "head_only=false")},
    lists=LISTS,
    arms={name: ARMS[name] for name in KEPT},
    tuned_rounds=20,
    budget=8,
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

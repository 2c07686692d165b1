"""Three architectures side by side on CIFAR-10, each at a third of the clients: averages cannot cross, an ensemble can.

    fedaux prepare studies/mixed.toml                              # the extractors of the two smaller ones
    python -m studies.mixed                                        # heads; minutes of one core
    python -m studies.mixed --cases "whole networks" --splits 2    # half an hour of one core an arm

Accuracy is the mean over the three students. studies/tuned.py says how a study runs, stops and goes on.
"""

from __future__ import annotations

from dataclasses import replace

from studies import heads
from studies.networks import SMALL
from studies.tuned import main

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
DESIGN = replace(
    heads.DESIGN,
    name="mixed-cifar10",
    config="studies/mixed.toml",
    cases={"heads": (), "whole networks": (*SMALL, "head_only=false")},
    arms={name: heads.ARMS[name] for name in KEPT},
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

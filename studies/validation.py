"""The order of methods on data that nothing was developed on: heads on Fashion-MNIST,
and on Amazon's reviews.

    python -m studies.validation --cases "Fashion-MNIST" "Amazon reviews"   # half an hour of one core each
    python -m studies.validation --table                                    # of what there is

Fashion-MNIST: ResNet-8 of width 16, trained without labels on the digits of MNIST,
which look like no clothes. Amazon's reviews: stars (1, 2, 4, 5) from the features of
all-MiniLM-L6-v2; public texts: sentences of old novels. studies/tuned.py says how a
study runs, stops and goes on.
"""

from __future__ import annotations

from dataclasses import replace

from studies import heads
from studies.tuned import main

KEPT = (
    "private head, ε = 1",
    "ridge",
    "discriminant",
    "FedAvg+P",
    "SCAFFOLD+P",
    "FedDF+P",
    "FedET+P",
    "FedAUX, ε = 1",
    "FedAvg+P, private-head start",
    "SCAFFOLD+P, private-head start",
    "FedAUX, ε = 1, private-head start",
    "FedAUX-SCAFFOLD, ε = 1, private-head start",
)
DESIGN = replace(
    heads.DESIGN,
    name="heads-validation",
    config="studies/validation.toml",
    cases={
        "Fashion-MNIST": (
            "data.source=studies.sources:fashion_mnist",
            "aux.source=studies.sources:mnist",
        ),
        "Amazon reviews": (
            "data.source=studies.sources:amazon",
            "aux.source=studies.sources:books",
            "aux.limit=8000",
            'prototypes=["encoder"]',
        ),
    },
    arms={name: heads.ARMS[name] for name in KEPT},
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

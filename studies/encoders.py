"""Heads on features of published encoders: every method tuned with 16 settings on
validation data, then tested.

    python -m studies.encoders --cases "α = 0.01" "α = 0.1" "α = 1"
    python -m studies.encoders --cases "80 clients" "Fashion-MNIST" "pneumonia" "AG News"
    python -m studies.encoders --table                        # of what there is

CIFAR-10 through efficientnet-lite0 (studies/published.toml), 20 clients of about 2,500
records; Fashion-MNIST and chest X-rays through the same encoder, news through
all-MiniLM-L6-v2. `python -m studies.secure_sums studies/published.toml` has the private
head by ε with several draws of noise. studies/tuned.py says how a study runs, stops and
goes on.
"""

from __future__ import annotations

from dataclasses import replace

from studies import heads
from studies.tuned import Arm, main

PRIVATE = {
    f"private head, ε = {epsilon:g}{', secure' if secure else ''}": Arm(
        "private-head",
        {"privacy.epsilon": epsilon, "federation.secure": secure},
        fixed=True,
    )
    for secure in (True, False)
    for epsilon in (0.1, 1.0, 3.0)
}
KEPT = (
    "ridge",
    "discriminant",
    "FedAvg+P",
    "SCAFFOLD+P",
    "FedAUX, ε = 1, private-head start",
    "FedET+P",
    "FedAUX-SCAFFOLD, ε = 1, private-head start",
    "FedDF+P",
    "FedDyn+P",
    "FedProx+P",
    "FedAvg+P, private-head start",
    "SCAFFOLD+P, private-head start",
)
CLASS_MOMENTS = {"privacy.scorer": "class-moments", "privacy.embedding_dim": 0}
TUNED_FROM_THE_HEAD = {
    **{name: heads.ARMS[name] for name in KEPT},
    "FedET+P, private-head start": Arm(
        "fedet+p", heads.PRIVATE, {**heads.STANDING, **heads.DIMENSIONS}
    ),
    "FedDyn+P, private-head start": Arm("feddyn+p", heads.PRIVATE, heads.DIMENSIONS),
}
# every method from the same, better head, with the settings that won from the other
FROM_ONE_HEAD = {
    f"{name}, class moments, private-head start": Arm(
        TUNED_FROM_THE_HEAD[f"{name}, private-head start"].method,
        CLASS_MOMENTS,
        like=f"{name}, private-head start",
    )
    for name in (
        "FedAUX, ε = 1",
        "SCAFFOLD+P",
        "FedAvg+P",
        "FedET+P",
        "FedDyn+P",
        "FedAUX-SCAFFOLD, ε = 1",
    )
}
DESIGN = replace(
    heads.DESIGN,
    name="heads-published",
    config="studies/published.toml",
    cases={f"α = {alpha:g}": (f"data.alpha={alpha}",) for alpha in (0.01, 0.1, 1)}
    | {
        "80 clients": ("data.clients=80", "data.alpha=0.1"),
        "Fashion-MNIST": (
            "data.source=studies.sources:fashion_mnist",
            "aux.source=studies.sources:mnist",
            "aux.limit=6000",
        ),
        "pneumonia": (  # three sites, all in every round
            "data.source=studies.sources:pneumonia",
            "data.clients=3",
            "data.alpha=0.1",
            "fraction=1.0",
            "aux.source=",
            "aux.limit=0",
            "aux.fraction=0.4",
        ),
        "AG News": (
            "data.source=studies.sources:ag_news",
            "aux.source=studies.sources:books",
            "aux.limit=8000",
            'prototypes=["encoder"]',
        ),
    },
    arms={**PRIVATE, **TUNED_FROM_THE_HEAD, **FROM_ONE_HEAD},
    budget=16,
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

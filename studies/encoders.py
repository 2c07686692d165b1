"""Heads on features of a published encoder: every method tuned with 16 settings on validation data, then tested.

    python -m studies.encoders --cases "α = 0.01" "α = 0.1" "α = 1"
    python -m studies.encoders --table                        # of what there is

CIFAR-10 through efficientnet-lite0 (studies/published.toml), 20 clients of about 2,500 records; heads under noise are
in `python -m studies.secure_sums studies/published.toml`. studies/tuned.py says how a study runs, stops and goes on.
"""

from __future__ import annotations

from dataclasses import replace

from studies import heads
from studies.tuned import Arm, main

KEPT = (
    "ridge",
    "discriminant",
    "FedAVG+P",
    "SCAFFOLD+P",
    "FedAUX, ε = 1, private-head start",
    "FedET+P",
    "FedAUX-SCAFFOLD, ε = 1, private-head start",
    "FedDF+P",
    "FedDyn+P",
    "FedPROX+P",
)
DESIGN = replace(
    heads.DESIGN,
    name="heads-published",
    config="studies/published.toml",
    cases={f"α = {alpha:g}": (f"data.alpha={alpha}",) for alpha in (0.01, 0.1, 1)},
    arms={
        "FedPFT": Arm("fedpft+p", heads.ALL, {"method_options.components": (1, 5, 10)}),
        **{name: heads.ARMS[name] for name in KEPT},
    },
    budget=16,
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

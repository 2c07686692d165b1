"""Whole networks on CIFAR-10 (ResNet-8 of width 16): who rises above the head that is
computed on the same extractor?

    python -m studies.artifact restore studies/networks.toml

    # 10,000 images: half an hour of one core an arm
    python -m studies.networks --splits 1

    # one-shot
    python -m studies.networks --splits 1 --rounds 1 --budget 3 \\
        --cases "10,000 images, everybody, α = 0.16" \\
        --arms "ridge" "private head, ε = 1" "FedAUX, ε = 1, 10 epochs" \\
        "FedAvg+P, private-head start, 10 epochs" \\
        "FedDF+P, private-head start, 10 epochs"

    # all of them: on a GPU, with --budget 8
    python -m studies.networks --cases "50,000 images" --splits 3

    # of what there is
    python -m studies.networks --table

studies/tuned.py says how a study runs, stops and goes on.
"""

from __future__ import annotations

from typing import Any

from studies.tuned import Arm, Design, main

BASE = (
    "local.optimizer=sgd",
    "local.lr=0.01",
    "local.max_grad_norm=0",
    # as when these curves were made: "auto" differs under a computed head
    "local.schedule=constant",
    "distill.lr=1e-3",
    "distill.epochs=1",
)
LISTS: dict[str, tuple[Any, ...]] = {
    "local": tuple({"optimizer": "sgd", "lr": lr} for lr in (0.001, 0.003, 0.01)),
    "local.freeze_batch_norm": (True, False),
    "local.epochs": (1,),
    "distill.lr": (1e-4, 1e-3),
    "distill.epochs": (1,),
}
# a head that must first be learned wants larger rates and more steps
RANDOM: dict[str, tuple[Any, ...]] = {
    "local": tuple({"optimizer": "sgd", "lr": lr} for lr in (0.01, 0.03, 0.1)),
    "local.epochs": (1, 3),
}
# where there is one round
LONG: dict[str, tuple[Any, ...]] = {"local.epochs": (10,), "distill.epochs": (5,)}
SMALL = ("data.options={limit = 10000, test_limit = 5000}", "aux.negatives=0.9")
ALL: dict[str, Any] = {"prepare": "all"}
STANDING = {
    "teachers.standing": True
}  # as heads preferred it: two fifths of the clients are asked, and have few classes
PRIVATE = {"head_init": "private-head", **ALL}
RIDGE = {"head_init": "ridge", **ALL}
ARMS: dict[str, Arm] = {  # what decides most comes first
    "ridge": Arm("ridge+p", ALL),
    "discriminant": Arm("discriminant+p", ALL),
    "private head, ε = 1": Arm(
        "private-head", {**ALL, "head_only": False, "privacy.scorer": "class-embedding"}
    ),
    "FedAUX-SCAFFOLD, ε = 1, ridge start": Arm(
        "fedaux-scaffold", {**RIDGE, **STANDING}
    ),
    "SCAFFOLD+P, ridge start": Arm("scaffold+p", RIDGE),
    "FedAUX, ε = 1, ridge start": Arm("fedaux", {**RIDGE, **STANDING}),
    "FedAvg+P, ridge start": Arm("fedavg+p", RIDGE),
    "FedDF+P, ridge start": Arm("feddf+p", RIDGE),
    "all images in one place, ridge start": Arm(
        "fedavg+p", {**RIDGE, "data.clients": 1, "fraction": 1.0}
    ),
    "FedAUX, ε = 1": Arm("fedaux", {**PRIVATE, **STANDING}),
    "FedAvg+P, private-head start": Arm("fedavg+p", PRIVATE),
    "SCAFFOLD+P": Arm("scaffold+p", own=RANDOM),
    "FedAvg+P": Arm("fedavg+p", own=RANDOM),
    "FedDF+P": Arm("feddf+p", own=RANDOM),
    "FedProx+P": Arm("fedprox+p", own=RANDOM),
    "FedAUX, ε = 1, 10 epochs": Arm("fedaux", PRIVATE, LONG, tuned_rounds=1),
    "FedAvg+P, private-head start, 10 epochs": Arm(
        "fedavg+p", PRIVATE, LONG, tuned_rounds=1
    ),
    "FedDF+P, private-head start, 10 epochs": Arm(
        "feddf+p", PRIVATE, LONG, tuned_rounds=1
    ),
    "FedAvg+P, 10 epochs": Arm("fedavg+p", own={**RANDOM, **LONG}, tuned_rounds=1),
    "FedDF+P, 10 epochs": Arm("feddf+p", own={**RANDOM, **LONG}, tuned_rounds=1),
    "FedAUX, ε = 1, ridge start, the other choice of standing": Arm(
        "fedaux", like="FedAUX, ε = 1, ridge start"
    ),
}
DESIGN = Design(
    name="networks-cifar10",
    config="studies/networks.toml",
    base=BASE,
    cases={  # the part of Tiny-ImageNet that is distilled on: 2,400 and 6,000 images
        "10,000 images": SMALL,
        "10,000 images, α = 100": (*SMALL, "data.alpha=100.0"),
        "10,000 images, everybody": (*SMALL, "fraction=1.0"),
        "10,000 images, everybody, α = 0.16": (
            *SMALL,
            "fraction=1.0",
            "data.alpha=0.16",
        ),
        "50,000 images": ("aux.negatives=0.75",),
        "50,000 images, α = 100": ("aux.negatives=0.75", "data.alpha=100.0"),
    },
    lists=LISTS,
    arms=ARMS,
    tuned_rounds=4,
    budget=6,
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

"""Linear heads on frozen features of CIFAR-10: every method tuned on validation data at
the same cost, then tested.

    python -m studies.artifact restore studies/cifar10.toml
    python -m studies.heads --cases 20 80 --rounds 20
    python -m studies.heads --cases 20 80 --rounds 100     # goes on with the same runs
    python -m studies.heads --table                        # of what there is

A case is a number of clients. studies/tuned.py says how a study runs, stops and goes
on.

Seconds of one core at 20 clients: 30 to tune what is averaged, 120 what is distilled; 4
and 30 for a run of 20 rounds. 80 clients take half as much again, and all arms with
three splits about 90 minutes; until round 100 three hours more.
"""

from __future__ import annotations

from typing import Any

from studies.tuned import Arm, Design, main

BASE = (
    "head_only=true",
    "fraction=0.4",
    "local.optimizer=sgd",
    "local.lr=0.01",
    "distill.lr=1e-3",
    "privacy.epsilon=1.0",
)
LISTS: dict[str, tuple[Any, ...]] = {
    "local": (
        *({"optimizer": "sgd", "lr": lr} for lr in (0.003, 0.01, 0.03, 0.1)),
        *({"optimizer": "adam", "lr": lr} for lr in (1e-4, 1e-3)),
    ),
    "local.epochs": (1, 3),
    "distill.lr": (1e-4, 1e-3, 1e-2),
    "distill.epochs": (1, 3),
}
DIMENSIONS: dict[str, tuple[Any, ...]] = {"privacy.embedding_dim": (16, 32, 64, 128)}
STANDING: dict[str, tuple[Any, ...]] = {"teachers.standing": (True, False)}
OF_FEDAUX = {**STANDING, **DIMENSIONS}


ALL: dict[str, Any] = {"prepare": "all"}
# of the private head: no second moments
PLAIN: dict[str, Any] = {**ALL, "privacy.scorer": "class-embedding"}
LESS: dict[str, Any] = {"privacy.epsilon": 0.1}
PRIVATE = {"head_init": "private-head", **ALL}
RIDGE = {"head_init": "ridge", **ALL}
AUX: dict[str, Any] = {"own": OF_FEDAUX}
ARMS: dict[str, Arm] = {  # what decides most comes first
    "private head, ε = 1": Arm("private-head", PLAIN, DIMENSIONS),
    "ridge": Arm("ridge+p", ALL),
    "discriminant": Arm("discriminant+p", ALL),
    "class means": Arm("class-means+p", ALL),
    "FedAvg+P": Arm("fedavg+p"),
    "FedAUX, ε = 1": Arm("fedaux", **AUX),
    "SCAFFOLD+P": Arm("scaffold+p"),
    "FedAUX, ε = 1, private-head start": Arm("fedaux", PRIVATE, **AUX),
    "FedAUX-SCAFFOLD, ε = 1, private-head start": Arm(
        "fedaux-scaffold", PRIVATE, **AUX
    ),
    "FedDyn+P": Arm("feddyn+p"),
    "SCAFFOLD+P, private-head start": Arm("scaffold+p", PRIVATE, DIMENSIONS),
    "FedAvg+P, private-head start": Arm("fedavg+p", PRIVATE, DIMENSIONS),
    "SCAFFOLD+P, FedAUX-SCAFFOLD's settings": Arm(
        "scaffold+p",
        {"teachers.standing": False},
        like="FedAUX-SCAFFOLD, ε = 1, private-head start",
    ),
    "FedAUX, ε = 1, the other choice of standing": Arm("fedaux", like="FedAUX, ε = 1"),
    "FedAUX, ε = 0.1": Arm("fedaux", LESS, **AUX),
    "FedAUX, ε = 0.1, private-head start": Arm("fedaux", {**PRIVATE, **LESS}, **AUX),
    "FedAUX-SCAFFOLD, ε = 0.1, private-head start": Arm(
        "fedaux-scaffold", {**PRIVATE, **LESS}, **AUX
    ),
    "private head, ε = 0.1": Arm("private-head", {**PLAIN, **LESS}, DIMENSIONS),
    "FedAvgM+P": Arm("fedavgm+p"),
    "FedAdam+P": Arm("fedadam+p"),
    "FedProx+P": Arm("fedprox+p"),
    "FedNova+P": Arm("fednova+p"),
    "FedDF+P": Arm("feddf+p"),
    "FedET+P": Arm("fedet+p", own=STANDING),
    "FedBE+P": Arm("fedbe+p"),
    "FedAvg+P, ridge start": Arm("fedavg+p", RIDGE),
    "SCAFFOLD+P, ridge start": Arm("scaffold+p", RIDGE),
    "FedAUX, ε = 1, ridge start": Arm("fedaux", RIDGE, **AUX),
    "ridge, 2,000 random features": Arm("ridge+p", {**ALL, "random_features": 2000}),
}

DESIGN = Design(
    name="heads-cifar10",
    config="studies/cifar10.toml",
    base=BASE,
    cases={"20": ("data.clients=20",), "80": ("data.clients=80",)},
    lists=LISTS,
    arms=ARMS,
    tuned_rounds=20,
    budget=8,
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

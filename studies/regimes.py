"""Whole networks on all 50,000 images of CIFAR-10, by heterogeneity: who rises above
the head that is computed?

    python -m studies.artifact restore studies/networks.toml
    python -m studies.regimes --splits 5 --rounds 30               # the one number, α = 0.1
    python -m studies.regimes --arms "FedAUX-SCAFFOLD" "FedDyn"    # what it does not need
    python -m studies.regimes --cases "α = 0.03" "α = 0.3" "α = 1" "three architectures"
    python -m studies.regimes --arms "FedAUX" "FedAvg" --rounds 50 # goes on with the same runs
    python -m studies.regimes --table                              # of what there is

ResNet-8 of width 16, C = 0.4, one epoch, 6,000 public images to distil on, all from the
private head at ε = 1, in the faster precision of the machine. Every method has four
settings on validation data at α = 0.1, two of them for ten rounds; other cases take the
winners. Where the first winner was at the edge of its list, three more settings lie
beyond it, for ten rounds each. A round takes 30 s of one core with AMX, 50 s where the
server distils; 50 and 85 to 130 s without. studies/tuned.py says how a study runs, stops and goes on.
"""

from __future__ import annotations

from typing import Any

from studies.question import Question
from studies.tuned import Arm, Design, main

START: dict[str, Any] = {"head_init": "private-head", "prepare": "all"}
STANDING: dict[str, Any] = {**START, "teachers.standing": True}
F32: dict[str, Any] = {"precision": "float32"}
ADAM = {
    "local": tuple({"optimizer": "adam", "lr": lr} for lr in (1e-4, 3e-4, 1e-3, 3e-3))
}
TWO: dict[str, tuple[Any, ...]] = {
    "local": ADAM["local"][1:3],
    "distill.lr": (5e-5, 3e-4),
}
# beyond the edges of TWO: 1e-3, the largest rate, and 5e-5, the least, have won
BEYOND_TWO: tuple[dict[str, Any], ...] = (
    {"local.optimizer": "adam", "local.lr": 3e-3, "distill.lr": 5e-5},
    {"local.optimizer": "adam", "local.lr": 3e-3, "distill.lr": 3e-4},
    {"local.optimizer": "adam", "local.lr": 1e-3, "distill.lr": 1e-5},
)
PLAIN: dict[str, Any] = {**START, "local.optimizer": "sgd", "local.lr": 0.3}
SGD: dict[str, tuple[Any, ...]] = {
    "local": tuple({"optimizer": "sgd", "lr": lr} for lr in (0.01, 0.03, 0.1, 0.3)),
    "method_options.server_lr": (1.0,),
}
# beyond the edge of SGD: 0.3 has won
BEYOND_SGD: tuple[dict[str, Any], ...] = (
    {"local.lr": 0.6},
    {"local.lr": 1.0},
    {"local.lr": 0.6, "method_options.server_lr": 0.5},
)
OF_TEACHERS = {**TWO, "teachers.standing": (True,)}
ARMS: dict[str, Arm] = {  # what decides most comes first
    "FedAUX": Arm("fedaux", STANDING, OF_TEACHERS, beyond=BEYOND_TWO),
    # 1e-3 has won, which has neighbours on both sides
    "FedAvg": Arm("fedavg+p", START, ADAM),
    "SCAFFOLD": Arm("scaffold+p", PLAIN, SGD, beyond=BEYOND_SGD),
    # from before there were settings beyond the list
    "SCAFFOLD, SGD 0.6": Arm("scaffold+p", {**PLAIN, "local.lr": 0.6}, fixed=True),
    "FedDF": Arm("feddf+p", STANDING, OF_TEACHERS, beyond=BEYOND_TWO),
    "FedET": Arm("fedet+p", START, like="FedAUX"),
    "FedDyn": Arm(
        "feddyn+p", PLAIN, {"local": SGD["local"], "method_options.alpha": (0.01,)}
    ),
    "FedAUX-SCAFFOLD": Arm("fedaux-scaffold", STANDING, like="SCAFFOLD"),
    "FedProx": Arm("fedprox+p", {**START, "local.mu": 0.01}, like="FedAvg"),
    "ridge": Arm("ridge+p", {"prepare": "all"}, fixed=True),
    "private head": Arm("private-head", {"head_only": False}, fixed=True),
    # from before there was bfloat16 here
    "FedAvg, not tuned, float32": Arm("fedavg+p", {**START, **F32}, fixed=True),
    "FedAvg, random head, not tuned, float32": Arm("fedavg+p", F32, fixed=True),
    "FedAUX, equal weights": Arm("feddf+p", STANDING, like="FedAUX"),  # the ablation
    "FedAUX, the round's teachers": Arm(
        "fedaux", {"teachers.standing": False}, like="FedAUX"
    ),
    "FedAUX, random head": Arm("fedaux", {"head_init": "random"}, like="FedAUX"),
    "FedAvg, random head": Arm(
        "fedavg+p", {"head_init": "random", "prepare": "auto"}, like="FedAvg"
    ),
}
NETWORKS = "{name = 'resnet8', width = 16}, {name = 'resnet8', width = 8}, 'cnn'"
THREE = (
    f"prototypes=[{NETWORKS}]",
    "data.alpha=0.1",
    "data.options.limit=20000",
    "aux.limit=12000",
    "pretrain.epochs=4",
)
ALPHAS = {
    f"α = {alpha:g}": (f"data.alpha={alpha}",) for alpha in (0.1, 0.01, 0.03, 0.3, 1)
}
DESIGN = Design(
    name="regimes-cifar10",
    config="studies/networks.toml",
    base=(
        "precision=auto",
        "aux.negatives=0.75",
        "data.options={test_limit = 4000}",
        "local.epochs=1",
        "local.optimizer=adam",
        "local.lr=0.001",
        "local.max_grad_norm=0",
        # as when these curves were made: "auto" differs under a computed head
        "local.schedule=constant",
        "local.freeze_batch_norm=false",
        "distill.epochs=1",
        "distill.lr=5e-5",
    ),
    cases={**ALPHAS, "three architectures": THREE},
    tuned_on=dict.fromkeys((*ALPHAS, "three architectures"), "α = 0.1"),
    lists={"local.epochs": (1,), "distill.epochs": (1,)},
    arms=ARMS,
    tuned_rounds=10,
    budget=4,
    shown=(1, 5, 10, 20, 30, 40, 50),
    # fixed before any split had run with all rivals
    question=Question(
        case="α = 0.1",
        ours="FedAUX",
        rivals=("SCAFFOLD", "FedDF", "FedET"),
        rounds=30,
        splits=5,
    ),
)

if __name__ == "__main__":
    main(DESIGN, __doc__)

"""The tables of T2 and T3: the teachers' weights, and the distillation of their ensemble into the students."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedaux.config.parsing import (
    Count,
    Momentum,
    Natural,
    NonNegative,
    Positive,
    Probability,
    Rate,
    Settings,
    Share,
    require,
)


@dataclass(frozen=True)
class DistillConfig(Settings):
    """T3: distillation of the ensemble into the students (KL divergence), and FedBE's draws."""

    section = "distill."

    epochs: Count = 1  # passes over D_distill per round
    lr: Rate = 5e-5  # learning rate
    batch_size: Count = 128  # of public examples
    samples: Count = 10  # models drawn from the Gaussian, FedBE only
    steps: Natural = 0  # of the optimiser per round; 0: those of the epochs
    optimizer: Literal["adam", "sgd"] = "adam"  # or sgd
    momentum: Momentum = 0.0  # SGD's
    train_mode: bool = False  # students normalise by batches of public examples, as in the code of FedDF and FedBE
    patience: Natural = 0  # steps without a lower loss on a held-out tenth of the public examples; 0: no early stop
    average_from: Probability = 1.0  # share of the steps after which students are averaged (SWA); 1: none
    combine: Literal["logits", "probabilities"] = "logits"  # softmax of the teachers' mean; or mean of their softmax
    temperature: Positive = 1.0  # T: soft labels are p^(1/T), made to sum to 1; below 1 they are sharper
    draws: Literal["models", "updates"] = "models"  # FedBE's Gaussian is over these; updates are divided by their norm
    draw_scale: NonNegative = 1.0  # of its standard deviation
    start: Literal["average", "student", "better"] = "average"  # of a student: or its last self; or the better of both

    def check(self) -> None:
        require(
            self.momentum == 0 or self.optimizer == "sgd", "distill.momentum is SGD's: set distill.optimizer = 'sgd'."
        )


@dataclass(frozen=True)
class TeachersConfig(Settings):
    """T2: the weights of the clients' models in the ensemble."""

    section = "teachers."

    weights: Literal["odds", "certainty"] = "odds"  # from a client's scores s: odds are s/(1 − s), certainty is s
    max_share: Share = 1.0  # largest share of the teachers' weight that one client may have on a public example
    run_on: Literal["server", "clients"] = "server"  # who runs teachers on D_distill; or each client, its own
    examples: Natural = 0  # of D_distill in a round, drawn anew for each; 0: all of them
    workers: Count = 1  # threads in which the server runs a teacher, on different examples; 1: torch's own threads
    standing: bool = False  # a client's last model stays a teacher until it sends another; false: one round only

    def check(self) -> None:
        require(
            self.run_on == "server" or self.max_share == 1,
            "teachers.max_share below 1 needs teachers.run_on = 'server': only the server sees all teachers' weights.",
        )
        require(
            self.run_on == "server" or not self.standing,
            "teachers.standing needs teachers.run_on = 'server': the weights of all teachers change with every round, "
            "and who is not asked cannot send its contribution again.",
        )

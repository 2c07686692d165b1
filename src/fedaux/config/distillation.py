"""The tables of T2 and T3: the teachers' weights, and the distillation of their ensemble into the students."""

from __future__ import annotations

from dataclasses import dataclass

from fedaux.config.parsing import require, require_choice, require_within


@dataclass(frozen=True)
class DistillConfig:
    """T3: distillation of the ensemble into the students (KL divergence), by Adam."""

    epochs: int = 1  # passes over D_distill per round
    lr: float = 5e-5  # learning rate
    batch_size: int = 128  # of public examples
    steps: int = 0  # of the optimiser per round; 0: those of the epochs
    train_mode: bool = False  # students normalise by batches of public examples, as in the code of FedDF
    patience: int = 0  # steps without a lower loss on a held-out tenth of the public examples; 0: all steps are made
    start: str = "average"  # of a student: the round's average; its last self, "student"; the "better" of the two

    def __post_init__(self) -> None:
        require_within("distill.epochs", self.epochs, "[1, inf)")
        require_within("distill.lr", self.lr, "(0, 1e20]")
        require_within("distill.batch_size", self.batch_size, "[1, inf)")
        require_within("distill.steps", self.steps, "[0, inf)", "0 makes those of the epochs")
        require_within("distill.patience", self.patience, "[0, inf)", "0 makes all steps")
        require_choice("distill.start", self.start, ("average", "student", "better"))


@dataclass(frozen=True)
class TeachersConfig:
    """T2: the weights of the clients' models in the ensemble."""

    weights: str = "odds"  # from a client's scores s: odds are s/(1 − s), certainty is s
    max_share: float = 1.0  # largest share of the teachers' weight that one client may have on a public example
    run_on: str = "server"  # who runs the clients' models on D_distill; "clients": each its own, on its copy of [aux]
    examples: int = 0  # of D_distill in a round, drawn anew for each; 0: all of them
    workers: int = 1  # threads in which the server runs a teacher, on different examples; 1: torch's own threads
    standing: bool = False  # a client's last model stays a teacher until it sends another; false: one round only

    def __post_init__(self) -> None:
        require_choice("teachers.weights", self.weights, ("odds", "certainty"))
        require_choice("teachers.run_on", self.run_on, ("server", "clients"))
        require_within("teachers.max_share", self.max_share, "(0, 1]")
        require(
            self.run_on == "server" or self.max_share == 1,
            "teachers.max_share below 1 needs teachers.run_on = 'server': only the server sees all teachers' weights.",
        )
        require(
            self.run_on == "server" or not self.standing,
            "teachers.standing needs teachers.run_on = 'server': the weights of all teachers change with every round, "
            "and who is not asked cannot send its contribution again.",
        )
        require_within("teachers.examples", self.examples, "[0, inf)", "0 takes all of D_distill")
        require_within("teachers.workers", self.workers, "[1, inf)")

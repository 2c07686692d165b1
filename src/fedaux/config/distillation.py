"""The tables of T2 and T3: the teachers' weights, and the distillation of their
ensemble into the students.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedaux.config.parsing import (
    Count,
    Natural,
    Rate,
    Settings,
    Share,
    require,
)

# of the optimiser in a round, unless a config says otherwise: they do not depend on how
# many public examples there are
DISTILL_STEPS = 200


@dataclass(frozen=True)
class DistillConfig(Settings):
    """T3: distillation of the ensemble into the students (KL divergence), by Adam."""

    section = "distill."

    # passes over D_distill per round. With 0, `steps` determine the length
    epochs: Natural = 0
    # the learning rate
    lr: Rate = 1e-4
    # the number of public examples in a batch
    batch_size: Count = 128
    # steps of the optimiser per round. With 0, `epochs` determine the length. If `epochs`
    # is 0 too, there are 200 steps. For a whole network that starts from a computed
    # head, these are halved in each further round, down to one
    steps: Natural = 0
    # whether students normalise by batches of public examples, as in the code of FedDF
    train_mode: bool = False

    def steps_in_round(
        self, round_: int, batches_an_epoch: int, *, fading: bool = False
    ) -> int:
        """Return the number of steps that the optimiser makes in round 1, 2, …

        Args:
            round_: The round.
            batches_an_epoch: The batches that all public examples make.
            fading: Whether the number is halved in each further round, down to one, if
                it is left to fedaux. Distillation repairs what averaging the first local
                models breaks. Later, the average knows more than the ensemble.
        """
        if self.steps:
            return self.steps
        if self.epochs:
            return self.epochs * batches_an_epoch
        return max(1, DISTILL_STEPS >> round_ - 1) if fading else DISTILL_STEPS


@dataclass(frozen=True)
class TeachersConfig(Settings):
    """T2: the weights of the clients' models in the ensemble."""

    section = "teachers."

    # how a client's scores s become weights: odds are s/(1 − s), certainty is s
    weights: Literal["odds", "certainty"] = "odds"
    # the largest share of the weight that one client may have on a public example
    max_share: Share = 1.0
    # who runs the teachers on D_distill: the server, or each client its own model
    run_on: Literal["server", "clients"] = "server"
    # the number of examples of D_distill in a round, drawn freshly for each round. With
    # 0, all are used
    examples: Natural = 0
    # whether a client's last model stays a teacher until the client sends another. If
    # false, it teaches in one round only
    standing: bool = False

    def check(self) -> None:
        require(
            self.run_on == "server" or self.max_share == 1,
            "Cannot use these settings: teachers.max_share below 1 needs "
            "teachers.run_on = 'server', because only the server sees all teachers' "
            "weights. Set one of them.",
        )
        require(
            self.run_on == "server" or not self.standing,
            "Cannot use these settings: teachers.standing needs teachers.run_on = "
            "'server', because the weights of all teachers change with every round, "
            "and a client that is not asked cannot send its contribution again. Set "
            "teachers.run_on = 'server', or leave teachers.standing out.",
        )

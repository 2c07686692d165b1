"""One round's T2 and T3: merge each checked update into the sum and drop it, then
average, distil and test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Failure
from fedaux.core.metrics import Evaluation
from fedaux.core.progress import WorkProgress, report
from fedaux.core.results import ClientMetrics, PrivateTraining, RoundResult
from fedaux.core.timing import Costs
from fedaux.messages import Subtotal, Update
from fedaux.methods.contribution import Contribution, Ensemble
from fedaux.methods.hooks import next_model, with_extra
from fedaux.scoring.teacher_weights import PublicEmbedding
from fedaux.server.distill import distill_students
from fedaux.server.networks import calibrations, evaluations
from fedaux.server.round_teachers import RoundTeachers
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from fedaux.server.update_norms import (
    UpdateNorm,
    check_norm,
    medians,
    norm_limits,
    update_norm,
)

# the share of a round's models that must be teachers: fewer would pull students to
# themselves
TEACHER_QUORUM = 0.5
_REASON = 500  # characters of a reason that are kept: a client writes some of them


@dataclass
class Round:
    """The sum of all contributions to a round, and the models that follow from it.

    The order in which updates arrive decides nothing: sums are of integers, and the
    limits on updates come from earlier rounds alone.

    Attributes:
        server: The server.
        number: The number of the round.
        sent: The weights that clients start from, by prototype.
        limits: How far an update may move from them.
        teachers: Turns models into parts of the ensemble.
        costs: Of this round.
        total: The sum of all contributions so far.
        client_metrics: Of the clients that have contributed.
        failures: Of the others, with reasons.
        private_training: Of the clients that train with noise.
        unprotected: How many updates came without noise.
        norms: How far each client moved its model, by prototype.
    """

    server: Server
    number: int
    sent: dict[str, Arrays]
    limits: dict[str, UpdateNorm]
    teachers: RoundTeachers
    costs: Costs
    total: Contribution = field(default_factory=Contribution)
    client_metrics: dict[str, ClientMetrics] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    private_training: dict[str, PrivateTraining] = field(default_factory=dict)
    unprotected: int = 0
    norms: dict[str, list[UpdateNorm]] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        server: Server,
        embedding: PublicEmbedding | None,
        state: RunState,
        asked: Sequence[str],
        costs: Costs,
    ) -> Round:
        """Start the round after `state`, in which these clients are asked."""
        with costs.phase("weigh"):
            teachers = RoundTeachers.of_round(server, embedding, state, asked)
        limits = norm_limits(state.history)
        number = state.round + 1
        return cls(server, number, state.weights, limits, teachers, costs)

    # T2: contributions

    def add(self, update: Update) -> Failure | None:
        """Add an update. An invalid one is left out, without ending the round; return
        what is wrong with it.
        """
        if update.noise > 0:
            self.private_training[update.client] = PrivateTraining(
                update.noise, update.rate, update.steps
            )
        else:
            self.unprotected += 1
        label = self.server.label_of(update.client)
        try:
            norm = self._norm(update, label)
            check_norm(norm, self.limits.get(label, {}))
            ensemble, share = self._teach(update, label)
            contribution = self._contribution(update, label, ensemble)
        except ValueError as error:
            failure = Failure(update.client, str(error))
            self.failures.append(failure)
            return failure
        self.total.merge(contribution)
        self.client_metrics[update.client] = ClientMetrics(
            update.records, update.loss, update.seconds, share
        )
        self.norms.setdefault(label, []).append(norm)
        return None

    def _norm(self, update: Update, label: str) -> UpdateNorm:
        """Return how far an update has moved. What a method sends next to the model
        starts from zero.
        """
        nothing = {name: np.zeros_like(array) for name, array in update.extra.items()}
        sent = with_extra(self.sent[label], nothing)
        received = with_extra(update.weights, update.extra)
        local = self.server.config.local
        steps = local.epochs * math.ceil(update.records / local.batch_size)
        return update_norm(sent, received, steps)

    def _teach(
        self, update: Update, label: str
    ) -> tuple[Ensemble | None, float | None]:
        if not self.server.method.distils:
            return None, None
        with self.costs.phase("teach"):
            return self.teachers.teach(update, label)

    def _contribution(
        self, update: Update, label: str, ensemble: Ensemble | None
    ) -> Contribution:
        return Contribution.of(
            label,
            with_extra(update.weights, update.extra),
            update.records if self.server.hooks.weighted else 1,
            ensemble,
            second_moment=self.server.method.teachers == "bayesian",
        )

    def merge(self, subtotal: Subtotal) -> None:
        """Add the sum of several clients, bit-identical to adding their own replies."""
        self.total.merge(Contribution.from_arrays(subtotal.contribution))
        self.client_metrics |= subtotal.client_metrics
        self.failures += subtotal.failures
        self.private_training |= subtotal.private_training
        self.unprotected += subtotal.unprotected
        for label, norms in subtotal.update_norms.items():
            self.norms.setdefault(label, []).extend(norms)

    def subtotal(self, accounts: dict[str, Account]) -> Subtotal:
        """Return everything added so far as one reply, with the accounts of the clients
        that answered.
        """
        return Subtotal(
            self.total.to_arrays(),
            accounts,
            self.client_metrics,
            self.private_training,
            self.unprotected,
            self.norms,
            self.failures,
            self.costs.received,
        )

    # T3: the next models

    @property
    def distils(self) -> bool:
        """Whether there are teachers, and enough of them."""
        teachers = self.total.teachers
        return teachers > 0 and teachers >= TEACHER_QUORUM * self.total.clients

    def finish(self, state: RunState) -> RunState:
        """Average, distil and test; return the state after this round."""
        server = self.server
        task = f"round {self.number}"
        report(WorkProgress(task, 0, 0, "averaging and distilling", "distil"))
        if server.standing:
            self._add_standing_teachers(state)
        averages, ensemble = self.total.finish()
        models, method_state = self._server_steps(state, averages)
        weights = {**state.weights, **models}
        loss = None
        if ensemble is not None and self.distils:
            weights, loss = self._distil(weights, ensemble)
        with self.costs.phase("test"):
            tests = self._test(weights)
            start = self._test(self.sent) if self.number == 1 else {}
        result = self._result(state, loss, tests, start)
        return state.after(weights, result, method_state)

    def _test(self, weights: dict[str, Arrays]) -> dict[str, Evaluation]:
        server = self.server
        return evaluations(
            server.networks, weights, server.public.test_inputs, server.classes
        )

    def _add_standing_teachers(self, state: RunState) -> None:
        with self.costs.phase("teach"):
            for teacher in self.teachers.standing(state, self.client_metrics):
                self.total.merge(Contribution(ensemble=teacher, teachers=1))

    def _server_steps(
        self, state: RunState, averages: Mapping[str, Arrays]
    ) -> tuple[dict[str, Arrays], dict[str, Arrays]]:
        """Return each prototype's next model, before any distillation, and the method's
        state.
        """
        models: dict[str, Arrays] = {}
        method_state: dict[str, Arrays] = {}
        labels = [self.server.label_of(client) for client in self.client_metrics]
        for label, mean in averages.items():
            answered = labels.count(label)
            clients = max(answered, self.server.clients_per_prototype[label])
            models[label], method_state[label] = next_model(
                self.server.hooks,
                state.weights[label],
                state.method_state.get(label, {}),
                mean,
                answered / clients,
            )
        return models, method_state

    def _distil(
        self, weights: dict[str, Arrays], ensemble: Ensemble
    ) -> tuple[dict[str, Arrays], float]:
        """Return the weights of the students, and their mean loss."""
        if self.server.method.teachers == "bayesian":
            for teacher in self.teachers.bayesian(self.total.models):
                self.total.merge(Contribution(ensemble=teacher, teachers=1))
        with self.costs.phase("distil"):
            return distill_students(
                self.server.networks,
                weights,
                self.teachers.inputs,
                ensemble,
                self.server.config,
                self.number,
            )

    def _result(
        self,
        state: RunState,
        distill_loss: float | None,
        tests: Mapping[str, Evaluation],
        start: Mapping[str, Evaluation],
    ) -> RoundResult:
        """Return this round's entry in the history."""
        effective = teachers = None
        if distill_loss is not None and self.total.ensemble is not None:
            effective = self.total.ensemble.effective_teachers()
            teachers = self.total.teachers
        failures = [
            replace(failure, reason=failure.reason[:_REASON])
            for failure in self.failures
        ]
        return RoundResult(
            round=self.number,
            accuracy={label: test.accuracy for label, test in tests.items()},
            # independent of arrival order
            client_metrics=dict(sorted(self.client_metrics.items())),
            failures=tuple(failures),
            private_training=self.private_training,
            unprotected_models=self.unprotected,
            epsilon=state.max_epsilon,
            distill_loss=distill_loss,
            effective_teachers=effective,
            teachers=teachers,
            update_norms={label: medians(norms) for label, norms in self.norms.items()},
            bytes_sent=self.costs.sent,
            bytes_received=self.costs.received,
            seconds=self.costs.seconds,
            metrics={label: test.summary() for label, test in tests.items()},
            confusion={label: test.table.tolist() for label, test in tests.items()},
            calibration=calibrations(tests),
            start={label: test.accuracy for label, test in start.items()},
        )

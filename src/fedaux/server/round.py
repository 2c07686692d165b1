"""One round's T2 and T3: merge each checked update into the sum and drop it, then
average, distil and test.

How far an update may move is limited by the median update of earlier rounds, the same
for every client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Failure
from fedaux.core.metrics import Evaluation
from fedaux.core.results import ClientMetrics, PrivateTraining, RoundResult
from fedaux.core.rng import numpy_stream
from fedaux.core.timing import Costs, payload_bytes
from fedaux.data.records import Indices, Records
from fedaux.messages import Subtotal, TrainOrder, Update
from fedaux.methods.contribution import Contribution, Ensemble
from fedaux.methods.hooks import next_model, with_extra
from fedaux.methods.summed_update import summed_contribution
from fedaux.methods.teachers import bayesian_teachers, own_weights, teacher_logits
from fedaux.scoring.pooled import PooledWeights
from fedaux.scoring.teacher_weights import PublicEmbedding, TeacherWeights
from fedaux.server.distill import distill_students
from fedaux.server.networks import evaluations
from fedaux.server.run_state import RunState
from fedaux.server.secure_sum import SecureTotal
from fedaux.server.server import Server

UpdateNorm = dict[str, float]  # of each array of a model, see `update_norm`
# the share of a round's models that must be teachers: fewer would pull students to
# themselves
TEACHER_QUORUM = 0.5
_REASON = 500  # characters of a reason that are kept: a client writes some of them
# times the median update norm of any earlier round; an honest client was seen at 13
NORM_LIMIT = 100.0


def update_norm(sent: Arrays, received: Arrays, steps: int) -> UpdateNorm:
    """Return ‖θ_i − θ_sent‖/√steps of parameters and running statistics; counters are
    ignored.

    Training moves weights roughly by the root of its steps, so clients with few and
    many records are comparable.
    """
    floats = [
        name for name, array in sent.items() if np.issubdtype(array.dtype, np.floating)
    ]
    # values that are not finite show in the norm
    with np.errstate(over="ignore", invalid="ignore"):
        return {
            name: float(np.linalg.norm(received[name] - sent[name])) / math.sqrt(steps)
            for name in floats
        }


def medians(norms: Sequence[UpdateNorm]) -> UpdateNorm:
    """Return the median norm of each array over the clients of a round."""
    return {name: float(np.median([norm[name] for norm in norms])) for name in norms[0]}


def norm_limits(history: Iterable[RoundResult]) -> dict[str, UpdateNorm]:
    """Return robust bounds by prototype: half of the clients would have to lie to move
    a median at will.
    """
    limits: dict[str, UpdateNorm] = {}
    for result in history:
        for label, median in result.update_norms.items():
            known = limits.setdefault(label, {})
            for name, size in median.items():
                if size > 0:
                    known[name] = max(known.get(name, 0.0), NORM_LIMIT * size)
    return limits


@dataclass
class Round:
    """The state of one round. `teacher_weights` covers the selected clients with a
    release, for a method with scores.

    Standing teachers are clients that contributed to an earlier round but not to this
    one: they join when it ends.

    `limits`, how far an update may move from the weights that were `sent`, comes from
    earlier rounds alone: the order in which updates arrive must not decide which are
    accepted.
    """

    server: Server
    number: int
    sent: dict[str, Arrays]
    limits: dict[str, UpdateNorm]
    teacher_weights: TeacherWeights | PooledWeights | None
    costs: Costs
    part: Indices | None = None  # of D_distill; None: all of it
    total: Contribution = field(default_factory=Contribution)
    # of the clients that contributed
    client_metrics: dict[str, ClientMetrics] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    private_training: dict[str, PrivateTraining] = field(default_factory=dict)
    unprotected: int = 0  # updates that came without noise
    # of each prototype's updates
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
        number, teachers = state.round + 1, server.config.teachers
        part = (
            server.public.part(teachers.examples, number)
            if server.method.distils
            else None
        )
        known = (
            sorted(state.last_round.keys() & set(server.clients) - set(asked))
            if server.standing
            else []
        )
        with costs.phase("weigh"):
            scored = embedding if server.method.scores else None
            weights: TeacherWeights | PooledWeights | None = None
            if scored and server.config.federation.secure:
                weights = scored.pooled_weights(state.pooled, asked, part)
            elif scored:
                weights = scored.teacher_weights(state.releases, [*asked, *known], part)
        return cls(
            server,
            number,
            state.weights,
            norm_limits(state.history),
            weights,
            costs,
            part,
        )

    def add(self, update: Update) -> Failure | None:
        """Add an update (T2). An invalid one is left out, without ending the round;
        return what is wrong with it.
        """
        self.costs.received += payload_bytes(update)
        if update.noise > 0:
            self.private_training[update.client] = PrivateTraining(
                update.noise, update.rate, update.steps
            )
        else:
            self.unprotected += 1
        label = self.server.label_of(update.client)
        try:
            norm = self._check_norm(update, label)
            contribution, share = self._contribution(update, label)
        except ValueError as error:
            self.failures.append(Failure(update.client, str(error)))
            return self.failures[-1]
        self.total.merge(contribution)
        self.client_metrics[update.client] = ClientMetrics(
            update.records, update.loss, update.seconds, share
        )
        self.norms.setdefault(label, []).append(norm)
        return None

    def add_sum(self, label: str, total: SecureTotal, order: TrainOrder) -> None:
        """Add the secure sum of the updates of a prototype's clients, of which only
        means are known.
        """
        clients = total.sites
        contribution, records, loss = summed_contribution(
            total.vector, order, self.server.hooks, label, len(clients)
        )
        self.total.merge(contribution)
        self.unprotected += len(clients)
        self.client_metrics |= dict.fromkeys(
            clients, ClientMetrics(max(1, records // len(clients)), loss, 0.0)
        )

    def subtotal(self, accounts: dict[str, Account]) -> Subtotal:
        """Return everything added so far as one reply, with the accounts of the clients
        that answered.
        """
        facts = {
            "client_metrics": {
                client: vars(item) for client, item in self.client_metrics.items()
            },
            "failures": [vars(failure) for failure in self.failures],
            "private_training": {
                client: vars(item) for client, item in self.private_training.items()
            },
            "accounts": {client: vars(account) for client, account in accounts.items()},
            "unprotected": self.unprotected,
            "norms": self.norms,
            "received": self.costs.received,
        }
        return Subtotal(facts, self.total.to_arrays())

    def merge(self, part: Subtotal) -> dict[str, Account]:
        """Add a region's clients, bit-identical to adding their own replies; return the
        answering clients' accounts.
        """
        facts = part.facts
        self.total.merge(Contribution.from_arrays(part.contribution))
        self.client_metrics |= {
            client: ClientMetrics(**item)
            for client, item in facts["client_metrics"].items()
        }
        self.failures += [Failure(**item) for item in facts["failures"]]
        self.private_training |= {
            client: PrivateTraining(**item)
            for client, item in facts["private_training"].items()
        }
        self.unprotected += facts["unprotected"]
        for label, norms in facts["norms"].items():
            self.norms.setdefault(label, []).extend(norms)
        self.costs.received += facts["received"]
        return {client: Account(**item) for client, item in facts["accounts"].items()}

    def _check_norm(self, update: Update, label: str) -> UpdateNorm:
        local, known = self.server.config.local, self.limits.get(label, {})
        steps = local.epochs * math.ceil(update.records / local.batch_size)
        nothing = {name: np.zeros_like(array) for name, array in update.extra.items()}
        sent, received = (
            with_extra(self.sent[label], nothing),
            with_extra(update.weights, update.extra),
        )
        norm = update_norm(sent, received, steps)
        for name, size in norm.items():
            limit = known.get(name, math.inf)
            if not math.isfinite(size):
                raise ValueError(f"its {name} are not finite")
            if size > limit:
                raise ValueError(
                    f"its {name} move by {size:.3g}; earlier rounds make {limit:.3g} "
                    "the limit"
                )
        return norm

    def _contribution(
        self, update: Update, label: str
    ) -> tuple[Contribution, float | None]:
        """Return what an update adds, and its mean share of all teachers' weight, None
        without scores.
        """
        arrays, records = (
            with_extra(update.weights, update.extra),
            update.records if self.server.hooks.weighted else 1,
        )
        ensemble, share = self._teach(update, label)
        bayesian = self.server.method.teachers == "bayesian"
        return Contribution.of(
            label, arrays, records, ensemble, second_moment=bayesian
        ), share

    def _teach(
        self, update: Update, label: str
    ) -> tuple[Ensemble | None, float | None]:
        """Return a client's part of the ensemble, computed here or by the client, and
        its share; None if no teacher.
        """
        scored = self.teacher_weights
        # of secure sums, in which nobody is seen alone
        assert not isinstance(scored, PooledWeights)
        if not self.server.method.distils or (
            scored is not None and update.client not in scored.teachers
        ):
            if self.server.standing:  # it will teach once it has made a release
                Ensemble.of(self._logits(label, update.weights, update.client))
            return None, None
        with self.costs.phase("teach"):
            if self.server.config.teachers.run_on == "clients":
                ensemble = Ensemble.from_arrays(update.ensemble)
                if scored is not None:
                    scored.check(update.client, ensemble.mass.value())
            else:
                logits = self._logits(label, update.weights, update.client)
                weights = (
                    own_weights(self.server.method, logits)
                    if scored is None
                    else scored.of(update.client)
                )
                ensemble = Ensemble.of(logits, weights)
            return ensemble, None if scored is None else scored.share(
                ensemble.mass.value()
            )

    def _logits(
        self, label: str, weights: Arrays, client: str = ""
    ) -> NDArray[np.float32]:
        """Return a teacher's logits on this round's part of D_distill; for standing
        teachers, all logits are saved.
        """
        standing = self.server.standing if client else None
        inputs = (
            self._inputs(label)
            if standing is None
            else self.server.public.distill_inputs(label)
        )
        logits = teacher_logits(self.server.networks.trained[label], weights, inputs)
        if standing is None:
            return logits
        standing.save(client, self.number, logits)
        return logits if self.part is None else logits[self.part]

    def _inputs(self, label: str) -> Records:
        """Return this round's part of D_distill, as inputs of a prototype's learner."""
        return self.server.public.distill_inputs(label, self.part)

    @property
    def distils(self) -> bool:
        """Whether there are teachers, and enough of them."""
        return (
            self.total.teachers > 0
            and self.total.teachers >= TEACHER_QUORUM * self.total.clients
        )

    def finish(self, state: RunState) -> RunState:
        """Add standing teachers, average, draw FedBE's models, distil and test; return
        the state after this round.
        """
        server = self.server
        if server.standing and not isinstance(self.teacher_weights, PooledWeights):
            others = set(server.clients) - self.client_metrics.keys()
            absent = {
                client: last
                for client, last in state.last_round.items()
                if client in others
            }
            with self.costs.phase("teach"):
                for teacher in server.standing.ensembles(
                    absent, self.teacher_weights, self.part, server.method
                ):
                    self.total.merge(Contribution(ensemble=teacher, teachers=1))
        averages, ensemble = self.total.finish()
        models, method_state = self._server_steps(state, averages)
        weights = {**state.weights, **models}
        distill_loss = effective = None
        if ensemble is not None and self.distils:
            if server.method.teachers == "bayesian":
                self._add_bayesian_teachers(ensemble)
            with self.costs.phase("distil"):
                weights, distill_loss = distill_students(
                    server.networks,
                    weights,
                    self._inputs,
                    ensemble,
                    server.config,
                    self.number,
                )
            effective = ensemble.effective_teachers()
        with self.costs.phase("test"):
            tests = evaluations(
                server.networks, weights, server.public.test_inputs, server.classes
            )
        return state.after(
            weights, self._result(state, distill_loss, effective, tests), method_state
        )

    def _server_steps(
        self, state: RunState, averages: dict[str, Arrays]
    ) -> tuple[dict[str, Arrays], dict[str, Arrays]]:
        """Return each prototype's next model, before any distillation, and the method's
        state.
        """
        models, method_state = {}, {}
        for label, mean in averages.items():
            answered = sum(
                self.server.label_of(client) == label for client in self.client_metrics
            )
            fraction = answered / max(
                answered, self.server.clients_per_prototype[label]
            )
            before = state.weights[label], state.method_state.get(label, {})
            models[label], method_state[label] = next_model(
                self.server.hooks, *before, mean, fraction
            )
        return models, method_state

    def _add_bayesian_teachers(self, ensemble: Ensemble) -> None:
        config = self.server.config
        for label, models in self.total.models.items():
            rng = numpy_stream(config.seed, "bayes", label, self.number)
            for weights in bayesian_teachers(models, rng):
                ensemble.merge(Ensemble.of(self._logits(label, weights)))
                self.total.teachers += 1

    def _result(
        self,
        state: RunState,
        distill_loss: float | None,
        effective: float | None,
        tests: dict[str, Evaluation],
    ) -> RoundResult:
        """Return this round's entry in the history."""
        return RoundResult(
            round=self.number,
            accuracy={label: one.accuracy for label, one in tests.items()},
            # independent of arrival order
            client_metrics=dict(sorted(self.client_metrics.items())),
            failures=tuple(
                replace(failure, reason=failure.reason[:_REASON])
                for failure in self.failures
            ),
            private_training=self.private_training,
            unprotected_models=self.unprotected,
            epsilon=state.max_epsilon,
            distill_loss=distill_loss,
            effective_teachers=effective,
            teachers=None if effective is None else self.total.teachers,
            update_norms={label: medians(norms) for label, norms in self.norms.items()},
            bytes_sent=self.costs.sent,
            bytes_received=self.costs.received,
            seconds=self.costs.seconds,
            metrics={label: one.summary() for label, one in tests.items()},
            confusion={label: one.table.tolist() for label, one in tests.items()},
        )

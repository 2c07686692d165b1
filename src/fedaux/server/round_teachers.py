"""The teachers of a round: clients that contribute, standing teachers of earlier rounds
and FedBE's draws. Each adds its part to the ensemble that students learn from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.core.arrays import Arrays
from fedaux.core.rng import numpy_stream
from fedaux.data.records import Indices, Records
from fedaux.messages import Update
from fedaux.methods.contribution import Ensemble, ModelSum, check_logits
from fedaux.methods.teachers import bayesian_teachers, logit_weights, teacher_logits
from fedaux.scoring.pooled import PooledWeights
from fedaux.scoring.teacher_weights import PublicEmbedding, TeacherWeights
from fedaux.server.run_state import RunState
from fedaux.server.server import Server


@dataclass(frozen=True, eq=False)
class RoundTeachers:
    """Runs the teachers of one round on public examples, and weights them.

    Attributes:
        server: The server.
        number: The number of the round.
        rows: This round's part of D_distill. None means all of it.
        weights: Those of the selected clients and of standing teachers that have made a
            release, for a method with scores.
    """

    server: Server
    number: int
    rows: Indices | None
    weights: TeacherWeights | PooledWeights | None

    @classmethod
    def of_round(
        cls,
        server: Server,
        embedding: PublicEmbedding | None,
        state: RunState,
        clients: Sequence[str],
    ) -> RoundTeachers:
        """Return the teachers of a round in which these clients are asked."""
        number = state.round + 1
        rows = None
        if server.method.distils:
            rows = server.public.part(server.config.teachers.examples, number)
        if embedding is None or not server.method.scores:
            return cls(server, number, rows, None)
        if server.config.federation.secure:
            pooled = embedding.pooled_weights(state.pooled, clients, rows)
            return cls(server, number, rows, pooled)
        standing: set[str] = set()
        if server.standing:
            standing = state.last_round.keys() & set(server.clients) - set(clients)
        names = [*clients, *sorted(standing)]
        scored = embedding.teacher_weights(state.releases, names, rows)
        return cls(server, number, rows, scored)

    @property
    def scored(self) -> TeacherWeights | None:
        """The weights of single clients, which secure sums do not have."""
        return self.weights if isinstance(self.weights, TeacherWeights) else None

    def inputs(self, label: str) -> Records:
        """Return this round's part of D_distill, as inputs of a prototype's learner."""
        return self.server.public.distill_inputs(label, self.rows)

    def teach(self, update: Update, label: str) -> tuple[Ensemble | None, float | None]:
        """Return a client's part of the ensemble, computed here or by the client, and
        its mean share of all teachers' weight.

        Both are None for a client that does not teach. Without scores, the share is.
        """
        if not self.server.method.distils:
            return None, None
        scored = self.scored
        if scored is not None and update.client not in scored.teachers:
            self._keep_for_later(update, label)
            return None, None
        ensemble = self._part_of(update, label)
        if scored is None:
            return ensemble, None
        return ensemble, scored.share(ensemble.mass.value())

    def _part_of(self, update: Update, label: str) -> Ensemble:
        scored = self.scored
        if self.server.config.teachers.run_on == "clients":
            ensemble = Ensemble.from_arrays(update.ensemble)
            if scored is not None:
                scored.check(update.client, ensemble.mass.value())
            return ensemble
        logits = self._logits(update, label)
        return Ensemble.of(logits, self._weights_of(update.client, logits))

    def _weights_of(
        self, client: str, logits: NDArray[np.floating]
    ) -> NDArray[np.floating] | None:
        """Return a teacher's weights on the rows. None means all teachers count equally."""
        if self.scored is None:
            return logit_weights(self.server.method, logits)
        return self.scored.of(client)

    def _logits(self, update: Update, label: str) -> NDArray[np.float32]:
        """Return the logits of a client's model on the rows. Where teachers stand, its
        logits on all of D_distill are kept.
        """
        standing = self.server.standing
        if standing is None:
            return self._run(label, update.weights)
        learner = self.server.networks.trained[label]
        inputs = self.server.public.distill_inputs(label)
        logits = teacher_logits(learner, update.weights, inputs)
        standing.save(update.client, self.number, logits)
        return logits if self.rows is None else logits[self.rows]

    def _run(self, label: str, weights: Arrays) -> NDArray[np.float32]:
        learner = self.server.networks.trained[label]
        return teacher_logits(learner, weights, self.inputs(label))

    def _keep_for_later(self, update: Update, label: str) -> None:
        """Keep the logits of a client that will teach once it has made a release. An
        update that could not teach is invalid already now.
        """
        if self.server.standing:
            check_logits(self._logits(update, label))

    def standing(
        self, state: RunState, contributed: Collection[str]
    ) -> Iterator[Ensemble]:
        """Yield the parts of clients that contributed to an earlier round, and not to
        this one.
        """
        if self.server.standing is None:
            return
        for client in self.server.clients:
            last = state.client(client).last_round
            if last == 0 or client in contributed:
                continue
            if self.scored is not None and client not in self.scored.teachers:
                continue
            logits = self.server.standing.load(client, last)
            if self.rows is not None:
                logits = logits[self.rows]
            yield Ensemble.of(logits, self._weights_of(client, logits))

    def bayesian(self, models: Mapping[str, ModelSum]) -> Iterator[Ensemble]:
        """Yield FedBE's teachers: each prototype's average, and draws around it."""
        for label, model in models.items():
            seed = self.server.config.seed
            rng = numpy_stream(seed, "bayes", label, self.number)
            for weights in bayesian_teachers(model, rng):
                yield Ensemble.of(self._run(label, weights))

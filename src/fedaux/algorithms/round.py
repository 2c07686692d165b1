"""One round's T2 and T3: fold each update into the sums and forget it, then average, distil and test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedaux.algorithms.aggregate import Ensemble, Tally
from fedaux.algorithms.hooks import next_model, with_extra, without_extra
from fedaux.algorithms.run_state import RunState
from fedaux.algorithms.server import Server
from fedaux.core.messages import Account, Arrays, Failure, Update
from fedaux.core.results import ClientMetrics, PrivateTraining, RoundResult
from fedaux.core.rng import numpy_stream
from fedaux.core.timing import Costs, payload_bytes
from fedaux.scoring.teacher_weights import Certainty, Weighing

Moved = dict[str, float]  # how far each array of a model went in local training, see `pace`
TOO_FAR = 100.0  # times what the median client of any earlier round moved; an honest one was seen at 13
_REASON = 500  # characters of a reason that are kept: a client writes some of them


@dataclass
class Gathering:
    """`weighing` knows the clients asked this round that have made a release: the teachers of a method that scores.

    How far an update may move from the weights that were `sent` is known from earlier rounds alone, in `limits`: the
    order in which updates arrive must not decide which are believed.
    """

    server: Server
    weighing: Weighing | None
    failures: list[Failure]
    sent: dict[str, Arrays]
    limits: dict[str, Moved]
    costs: Costs
    tallies: dict[str, Tally] = field(default_factory=dict)
    client_metrics: dict[str, ClientMetrics] = field(default_factory=dict)  # of updates that count
    accounts: dict[str, Account] = field(default_factory=dict)  # of all that answered
    private_training: dict[str, PrivateTraining] = field(default_factory=dict)
    unprotected: int = 0  # updates that came without noise
    moved: dict[str, list[Moved]] = field(default_factory=dict)  # of each prototype's updates
    ensemble: Ensemble | None = None

    @classmethod
    def start(
        cls, server: Server, certainty: Certainty | None, state: RunState, chosen: Sequence[str], costs: Costs
    ) -> Gathering:
        with costs.phase("weigh"):
            weighing = certainty.among(state.releases, chosen) if certainty else None
        gathering = cls(server, weighing, [], state.weights, limits(state.history), costs)
        if server.method.distils:
            gathering.ensemble = Ensemble(len(server.distill_set), server.classes)
        return gathering

    def add(self, update: Update) -> None:
        """T2. An update that makes no sense costs its contribution, never the round."""
        self.costs.received += payload_bytes(update)
        self.accounts[update.client] = Account.from_json(update.account)
        if update.noise > 0:
            self.private_training[update.client] = PrivateTraining(update.noise, update.rate, update.steps)
        else:
            self.unprotected += 1
        label = self.server.prototype_of[update.client].label
        tally = self.tallies.get(label, Tally())
        bayesian = self.server.method.teachers == "bayesian"
        arrays = with_extra(update.weights, update.extra)
        weight = update.records if self.server.hooks.weighted else 1
        try:
            tally.check(arrays, weight, second_moment=bayesian)
            moved = self._check_moved(update, label)
            with self.costs.phase("teach"):
                share = self._teach(update, label)
        except ValueError as error:
            self.failures.append(Failure(update.client, str(error)))
            return
        tally.add(arrays, weight, second_moment=bayesian)
        self.tallies[label] = tally
        self.client_metrics[update.client] = ClientMetrics(update.records, update.loss, update.seconds, share)
        self.moved.setdefault(label, []).append(moved)

    def _check_moved(self, update: Update, label: str) -> Moved:
        local, known = self.server.config.local, self.limits.get(label, {})
        moved = pace(self.sent[label], update.weights, local.epochs * math.ceil(update.records / local.batch_size))
        for name, size in moved.items():
            limit = known.get(name, math.inf)
            if not size <= limit:
                raise ValueError(f"its {name} move by {size:.3g}; earlier rounds make {limit:.3g} the limit")
        return moved

    def _teach(self, update: Update, label: str) -> float | None:
        """Its share of the weight of all teachers, on average over D_distill; None where nothing is weighed."""
        if self.ensemble is None or (self.weighing is not None and update.client not in self.weighing.teachers):
            return None
        if self.weighing is None:
            self.server.teach(label, update.weights, self.ensemble, None)
            return None
        weights = self.weighing.weights(update.client)
        self.server.teach(label, update.weights, self.ensemble, weights)
        return self.weighing.share(weights)

    def finish(self, state: RunState) -> RunState:
        """Averages, FedBE's draws, students, test: the state after this round."""
        server, round_ = self.server, state.round + 1
        stepped = {label: self._step(state, label, tally) for label, tally in self.tallies.items()}
        weights = {**state.weights, **{label: model for label, (model, _) in stepped.items()}}
        distill_loss = teachers = None
        if self.ensemble is not None and self.ensemble.taught:
            if server.method.teachers == "bayesian":
                self._add_bayesian_teachers(self.ensemble, round_)
            with self.costs.phase("distil"):
                weights, distill_loss = server.distil(weights, self.ensemble, round_)
            teachers = self.ensemble.effective_teachers()
        with self.costs.phase("test"):
            confusions = server.confusions(weights)
        result = RoundResult(
            round=round_,
            accuracy={label: float(np.trace(table) / table.sum()) for label, table in confusions.items()},
            client_metrics=self.client_metrics,
            failures=tuple(Failure(one.client, one.reason[:_REASON]) for one in self.failures),
            private_training=self.private_training,
            unprotected_models=self.unprotected,
            epsilon=_largest(state.accounts.values()),
            distill_loss=distill_loss,
            effective_teachers=teachers,
            update_norms={label: medians(each) for label, each in self.moved.items()},
            bytes_sent=self.costs.sent,
            bytes_received=self.costs.received,
            seconds=self.costs.seconds,
            confusion={label: table.tolist() for label, table in confusions.items()},
        )
        return state.after(weights, result, {label: kept for label, (_, kept) in stepped.items()})

    def _step(self, state: RunState, label: str, tally: Tally) -> tuple[Arrays, Arrays]:
        """The next model of a prototype, and what its method keeps."""
        dealt = [client for client, spec in self.server.prototype_of.items() if spec.label == label]
        fraction = sum(client in self.client_metrics for client in dealt) / len(dealt)
        before = state.weights[label], state.method_state[label]
        return next_model(self.server.hooks, before[0], tally.average(), fraction, before[1])

    def _add_bayesian_teachers(self, ensemble: Ensemble, round_: int) -> None:
        for label, tally in self.tallies.items():
            rng = numpy_stream(self.server.config.seed, "bayes", label, round_)
            for drawn in [tally.average(), *tally.gaussian_draws(self.server.config.distill.samples, rng)]:
                self.server.teach(label, without_extra(drawn)[0], ensemble, None)


def _largest(accounts: Iterable[Account]) -> float | None:
    """The largest total ε that any client has reported so far; None where there is none, or noise was seeded."""
    largest = max((one.epsilon for one in accounts), default=0.0)
    return largest if 0 < largest < math.inf else None


def pace(sent: Arrays, got: Arrays, steps: int) -> Moved:
    """‖θ_i − θ_sent‖/√steps, of parameters and of running statistics; counters have no say.

    Training drifts about as the root of its steps, so clients with few and with many records can be compared.
    """
    floats = [name for name, array in sent.items() if np.issubdtype(array.dtype, np.floating)]
    return {name: float(np.linalg.norm(got[name] - sent[name])) / math.sqrt(steps) for name in floats}


def medians(each: Sequence[Moved]) -> Moved:
    return {name: float(np.median([one[name] for one in each])) for name in each[0]}


def limits(history: Iterable[RoundResult]) -> dict[str, Moved]:
    """By prototype: a robust bound, as half of the clients would have to lie to move a median at will."""
    found: dict[str, Moved] = {}
    for result in history:
        for label, moved in result.update_norms.items():
            known = found.setdefault(label, {})
            known.update({name: max(known.get(name, 0.0), TOO_FAR * size) for name, size in moved.items() if size > 0})
    return found

"""One round's T2 and T3: fold each update into the sums and forget it, then average, distil and test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedaux.exchange import Failure, Update
from fedaux.prepare.certainty import Certainty, Weighing
from fedaux.seeds import numpy_stream
from fedaux.server import Server
from fedaux.state import Record, RunState
from fedaux.train.combine import Ensemble, Tally


@dataclass
class Gathering:
    """`weighing` knows the clients asked this round that have made a release: the teachers of a method that scores."""

    server: Server
    weighing: Weighing | None
    failures: list[Failure]
    tallies: dict[str, Tally] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)  # of the clients that answered
    spent: dict[str, list[float]] = field(default_factory=dict)  # of clients that trained privately
    ensemble: Ensemble | None = None
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def start(cls, server: Server, certainty: Certainty | None, state: RunState, chosen: Sequence[str]) -> Gathering:
        gathering = cls(server, certainty.among(state.releases, chosen) if certainty else None, [])
        if server.method.distils:
            gathering.ensemble = Ensemble(len(server.distill_set), server.classes)
        return gathering

    def add(self, update: Update) -> None:
        """T2. An update that makes no sense costs its contribution, never the round."""
        self.spent[update.client] = [update.noise, update.rate, update.steps]
        label = self.server.prototype_of[update.client].label
        tally = self.tallies.get(label, Tally())
        bayesian = self.server.method.teachers == "bayesian"
        try:
            tally.check(update.weights, update.records, second_moment=bayesian)
            self._teach(update, label)
        except ValueError as error:
            self.failures.append(Failure(update.client, str(error)))
            return
        tally.add(update.weights, update.records, second_moment=bayesian)
        self.tallies[label] = tally
        self.losses[update.client] = update.loss

    def _teach(self, update: Update, label: str) -> None:
        if self.ensemble is None:
            return
        if self.weighing is None:
            self.server.teach(label, update.weights, self.ensemble, None)
        elif update.client in self.weighing.teachers:
            self.server.teach(label, update.weights, self.ensemble, self.weighing.weights(update.client))

    def finish(self, state: RunState) -> RunState:
        """Averages, FedBE's draws, students, test: the state after this round."""
        server, round_ = self.server, state.round + 1
        weights = {**state.weights, **{label: tally.average() for label, tally in self.tallies.items()}}
        distill_loss = teachers = None
        if self.ensemble is not None and self.ensemble.taught:
            if server.method.teachers == "bayesian":
                self._add_bayesian_teachers(self.ensemble, round_)
            weights, distill_loss = server.distil(weights, self.ensemble, round_)
            teachers = self.ensemble.effective_teachers()
        record: Record = {
            "round": round_,
            "accuracy": server.accuracies(weights),
            "clients": len(self.losses),
            "failures": [[one.client, one.reason] for one in self.failures],
            "spent": self.spent if any(noise for noise, _, _ in self.spent.values()) else {},
            "local_loss": float(np.mean(list(self.losses.values()))),
            "distill_loss": distill_loss,
            "teachers": teachers,
            "seconds": time.perf_counter() - self.started,
        }
        return state.after(weights, record, self.losses, [one.client for one in self.failures])

    def _add_bayesian_teachers(self, ensemble: Ensemble, round_: int) -> None:
        for label, tally in self.tallies.items():
            rng = numpy_stream(self.server.config.seed, "bayes", label, round_)
            for drawn in [tally.average(), *tally.gaussian_draws(self.server.config.distill.samples, rng)]:
                self.server.teach(label, drawn, ensemble, None)

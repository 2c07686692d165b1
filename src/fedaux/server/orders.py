"""What clients are asked for: a release (P2, P3), sums of features, and local training
(T1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedaux.config.methods import find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays
from fedaux.core.io import write_atomically
from fedaux.core.rng import derive_seed
from fedaux.messages import (
    LookOrder,
    PrepareOrder,
    SumsOrder,
    Tallies,
    Teaching,
    TrainOrder,
)
from fedaux.methods.hooks import Hooks, hooks_of
from fedaux.models import Prototype, flatten_state, published_weights, to_half
from fedaux.scoring.base import PublicScorer
from fedaux.scoring.pooled import PooledWeights
from fedaux.scoring.public_data import PublicData
from fedaux.scoring.teacher_weights import TeacherWeights
from fedaux.server.class_weights import class_weights
from fedaux.server.networks import Networks
from fedaux.server.run_state import RunState, StateError


class AccountCounts:
    """Keeps the number of entries in each site's account, with the site's signature, in
    one JSON file.

    To accept a new account of a site, remove its name from the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, tuple[int, str]] = {}
        if not path.is_file():
            return
        try:
            counts = json.loads(path.read_bytes())
            for name, (entries, signature) in counts.items():
                self._entries[name] = (int(entries), str(signature))
        except (ValueError, TypeError, AttributeError) as error:
            raise StateError(
                f"Cannot continue: {path} is damaged ({error}), and without it sites "
                "may spend their budgets twice. Restore it."
            ) from error

    def entries(self, client: str) -> tuple[int, str]:
        return self._entries.get(client, (0, ""))

    def update(self, accounts: Mapping[str, Account]) -> None:
        """Record the counts, on disk when this returns. Counts only grow. Of equal ones
        the last signature is kept.
        """
        changed = False
        for name, account in accounts.items():
            count = (account.entries, account.signature)
            if self._is_newer(name, account) and count != self.entries(name):
                self._entries[name] = count
                changed = True
        if changed:
            content = json.dumps(self._entries, indent=1, sort_keys=True)
            write_atomically(self._path, content.encode())

    def _is_newer(self, name: str, account: Account) -> bool:
        entries, _ = self.entries(name)
        if account.entries == entries:
            return entries > 0 and account.signature != ""
        return account.entries > entries


@dataclass
class Agreement:
    """The plan that the sites of a run were shown. Its hash is in every order, or "" where
    clients are simulated.

    Attributes:
        plan: The hash.
        text: The plan as JSON.
        settled: The sites whose owners have approved it, or have refused.
    """

    plan: str = ""
    text: str = ""
    settled: set[str] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class Orders:
    """Makes the orders to clients. `spec_of` returns the prototype that a client
    trains.
    """

    config: Config
    classes: int
    scorer: PublicScorer
    networks: Networks
    public: PublicData
    spec_of: Callable[[str], PrototypeSpec]
    known_accounts: AccountCounts | None = None  # from all runs of a deployment
    agreement: Agreement = field(default_factory=Agreement)
    # see `_once`
    _made: dict[tuple[str, str], tuple[Arrays, Arrays]] = field(
        default_factory=dict, repr=False
    )

    @cached_property
    def hooks(self) -> Hooks:
        return hooks_of(self.config.method, dict(self.config.method_options))

    def run_id(self, state: RunState) -> str:
        """Return the id under which clients keep their state of the run."""
        return state.run or self._run_id_of_settings

    @cached_property
    def _run_id_of_settings(self) -> str:
        # cached: hashing all settings takes longer than the rest of an order
        return self.config.run_id

    def prepare(self, state: RunState, client: str) -> PrepareOrder:
        spec = self.spec_of(client)
        public = state.public[spec.label]
        known_entries, signature = self._known_entries(state, client)
        return PrepareOrder(
            client=client,
            prototype=spec.to_json(),
            scorer=self.scorer.name,
            classes=self.classes,
            size=self.scorer.size(public),
            h0=self.public.h0[spec.label].hash,
            known_entries=known_entries,
            known_signature=signature,
            extractor=self._extractor(state, client),
            public=public,
            plan=self.agreement.plan,
        )

    def sums(self, state: RunState, client: str, sends: str) -> SumsOrder:
        spec = self.spec_of(client)
        width = self.networks.whole[spec.label].width
        return SumsOrder(
            client=client,
            prototype=spec.to_json(),
            classes=self.classes,
            sends=sends,
            width=self.config.random_features or width,
            h0=self.public.h0[spec.label].hash,
            random_features=self.config.random_features,
            extractor=self._extractor(state, client),
            standardisation=state.standardisation.get(spec.label, {}),
            plan=self.agreement.plan,
        )

    def train(
        self,
        state: RunState,
        client: str,
        weights: TeacherWeights | PooledWeights | None = None,
    ) -> TrainOrder:
        """Make the order to train. `weights` are those of the round's teachers, for a
        method with scores.
        """
        config = self.config
        spec = self.spec_of(client)
        round_ = state.round + 1
        local = config.local_training
        known_entries, signature = self._known_entries(state, client)
        teaching = self._teaching(state, client, weights)
        h0 = ""
        extractor: Arrays = {}
        standardisation: Arrays = {}
        if config.head_only:
            h0 = self.public.h0[spec.label].hash
            standardisation = state.standardisation.get(spec.label, {})
        if config.head_only or teaching.get("public"):
            extractor = self._extractor(state, client)
        return TrainOrder(
            client=client,
            round=round_,
            prototype=spec.to_json(),
            classes=self.classes,
            method=config.method,
            method_options=json.dumps(dict(config.method_options)),
            epochs=local.epochs,
            batch_size=local.batch_size,
            optimizer=local.optimizer,
            lr=local.lr_at(round_, config.rounds),
            momentum=local.momentum,
            weight_decay=local.weight_decay,
            mu=local.mu if find_method(config.method).proximal else 0.0,
            seed=derive_seed(config.seed, "batches", client, round_),
            h0=h0,
            known_entries=known_entries,
            known_signature=signature,
            run=self.run_id(state),
            last_round=state.client(client).last_round,
            extractor=extractor,
            weights=self._model(state, spec.label),
            broadcast=self._once(
                spec.label, state.method_state[spec.label], self.hooks.broadcast
            ),
            standardisation=standardisation,
            random_features=config.random_features,
            freeze_batch_norm=local.freeze_batch_norm is True,
            max_grad_norm=local.max_grad_norm,
            class_weights=self._class_weights(state, spec.label),
            plan=self.agreement.plan,
            **teaching,
        )

    def look(self, state: RunState, client: str, tallies: Tallies) -> LookOrder:
        """Make the order to test the current model on the records that a client holds
        out.
        """
        config = self.config
        spec = self.spec_of(client)
        label = spec.label
        known_entries, signature = self._known_entries(state, client)
        h0 = ""
        extractor: Arrays = {}
        standardisation: Arrays = {}
        if config.frozen_features:
            h0 = self.public.h0[label].hash
            extractor = self._extractor(state, client)
        if config.head_only:
            standardisation = state.standardisation.get(label, {})

        def tested_part(weights: Arrays) -> Arrays:
            """Leave out an extractor that is frozen: sites have its features."""
            if config.head_only or config.trains:
                return weights
            learner = cast(Prototype, self.networks.loaded(label, weights))
            return flatten_state(learner.head)

        return LookOrder(
            client=client,
            prototype=spec.to_json(),
            classes=self.classes,
            tallies=tallies.to_json(),
            size=tallies.size(self.classes),
            h0=h0,
            random_features=config.random_features,
            run=self.run_id(state),
            known_entries=known_entries,
            known_signature=signature,
            weights=self._once(label, state.weights[label], tested_part),
            extractor=extractor,
            standardisation=standardisation,
            plan=self.agreement.plan,
        )

    def look_at_data(self, state: RunState, client: str, tallies: Tallies) -> LookOrder:
        """Make the order to count all records of a client. There is no model in it, and
        all clients get the same one.
        """
        known_entries, signature = self._known_entries(state, client)
        return LookOrder(
            client=client,
            prototype=self.config.prototypes[0].to_json(),
            classes=self.classes,
            tallies=tallies.to_json(),
            size=tallies.size(self.classes),
            h0="",
            random_features=self.config.random_features,
            run=self.run_id(state),
            known_entries=known_entries,
            known_signature=signature,
            plan=self.agreement.plan,
        )

    def _model(self, state: RunState, label: str) -> Arrays:
        """Return a prototype's weights in the precision in which they are sent."""
        weights = state.weights[label]
        if self.config.federation.precision == "float16":
            return self._once(label, weights, to_half)
        return weights

    def _class_weights(self, state: RunState, label: str) -> Arrays:
        """Return how much records of each class count, or {} if all count alike."""
        if not self.config.class_weights:
            return {}
        if label in state.pooled:
            releases = [state.pooled[label]]
        else:
            releases = [
                state.releases[client]
                for client in sorted(state.releases)
                if self.spec_of(client).label == label
            ]
        weights = class_weights(
            self.config, self.classes, self.scorer, state, label, releases
        )
        return {"weights": weights.astype(np.float32)}

    def _known_entries(self, state: RunState, client: str) -> tuple[int, str]:
        """Return the largest known number of entries in a client's account, of any run,
        and its signature.
        """
        of_run = state.known_entries(client)
        if self.known_accounts is None:
            return of_run
        of_all_runs = self.known_accounts.entries(client)
        return max(of_run, of_all_runs, key=lambda pair: (pair[0], bool(pair[1])))

    def _teaching(
        self,
        state: RunState,
        client: str,
        weights: TeacherWeights | PooledWeights | None,
    ) -> dict[str, Any]:
        """Return what a client needs to run its own model on D_distill and to weight
        it, or {} if it does not.
        """
        method = find_method(self.config.method)
        settings = self.config.teachers
        if not method.distils or settings.run_on != "clients":
            return {}
        if method.scores and (weights is None or client not in weights.teachers):
            return {}
        rows = self.public.part(settings.examples, state.round + 1)
        size = len(self.public.distill) if rows is None else len(rows)
        teaching = Teaching(self.public.distill_hash, size)
        if weights is None:
            return {"teaching": teaching.to_json()}
        label = self.spec_of(client).label
        scored = replace(
            teaching,
            scorer=self.scorer.name,
            weights=settings.weights,
            h0=self.public.h0[label].hash,
        )
        fit, client_fit = weights.broadcast(client)
        return {
            "teaching": scored.to_json(),
            "public": state.public[label],
            "fit": fit,
            "client_fit": client_fit,
        }

    def _extractor(self, state: RunState, client: str) -> Arrays:
        """Return h0, or nothing if the client already has its features or a copy of the
        published encoder.
        """
        label = self.spec_of(client).label
        own_copy = find_method(self.config.method).pretrained and published_weights(
            self.networks.extractors[label]
        )
        return (
            {} if own_copy or state.client(client).prepared else state.extractors[label]
        )

    def _once(
        self, label: str, source: Arrays, make: Callable[[Arrays], Arrays]
    ) -> Arrays:
        """Return `make(source)`, the same object for all clients of a round, so that it
        is packed only once.
        """
        key = label, make.__name__
        if key in self._made:
            last_source, arrays = self._made[key]
            if last_source is source:
                return arrays
        arrays = make(source)
        self._made[key] = source, arrays
        return arrays

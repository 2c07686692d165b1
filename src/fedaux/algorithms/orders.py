"""What clients are asked for: a release (P2, P3) and local training (T1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from fedaux.algorithms.hooks import Hooks, hooks_of
from fedaux.algorithms.learners import Learners
from fedaux.algorithms.public_data import PublicData
from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.messages import Arrays, PrepareOrder, TrainOrder
from fedaux.core.rng import derive_seed
from fedaux.models import published_weights, to_half
from fedaux.scoring.base import Scorer


@dataclass(frozen=True, eq=False)
class Orders:
    """`spec_of` says which prototype a client trains."""

    config: Config
    classes: int
    scorer: Scorer
    learners: Learners
    public: PublicData
    spec_of: Callable[[str], PrototypeSpec]
    _halved: dict[str, tuple[Arrays, Arrays]] = field(default_factory=dict, repr=False)  # see `_on_the_wire`
    _sent: dict[str, tuple[Arrays, Arrays]] = field(default_factory=dict, repr=False)  # see `_broadcast`

    @cached_property
    def hooks(self) -> Hooks:
        return hooks_of(self.config.method, dict(self.config.method_options))

    def prepare(self, state: RunState, client: str) -> PrepareOrder:
        spec = self.spec_of(client)
        public = state.public[spec.label]
        return PrepareOrder(
            client=client,
            prototype=spec.to_json(),
            scorer=self.scorer.name,
            classes=self.classes,
            size=self.scorer.size(public),
            h0=self.public.h0[spec.label].hash,
            heard=state.heard(client),
            extractor=self._extractor(state, client),
            public=public,
        )

    def train(self, state: RunState, client: str) -> TrainOrder:
        spec, config, round_ = self.spec_of(client), self.config, state.round + 1
        return TrainOrder(
            client=client,
            round=round_,
            prototype=spec.to_json(),
            classes=self.classes,
            method=config.method,
            method_options=json.dumps(dict(config.method_options)),
            epochs=config.local.epochs,
            batch_size=config.local.batch_size,
            optimizer=config.local.optimizer,
            lr=config.local.lr_at(round_, config.rounds),
            momentum=config.local.momentum,
            weight_decay=config.local.weight_decay,
            mu=config.local.mu if find_method(config.method).proximal else 0.0,
            seed=derive_seed(config.seed, "batches", client, round_),
            h0=self.public.h0[spec.label].hash if config.head_only else "",
            heard=state.heard(client),
            run=config.run_id,
            last_round=state.last_round.get(client, 0),
            extractor=self._extractor(state, client) if config.head_only else {},
            weights=self._on_the_wire(spec.label, state.weights[spec.label]),
            broadcast=self._broadcast(spec.label, state.method_state[spec.label]),
        )

    def _extractor(self, state: RunState, client: str) -> Arrays:
        """h0 itself, or nothing where the client has its features already or a copy of the published encoder."""
        label = self.spec_of(client).label
        own_copy = find_method(self.config.method).pretrained and published_weights(self.learners.extractors[label])
        return {} if own_copy or client in state.prepared else state.extractors[label]

    def _on_the_wire(self, label: str, weights: Arrays) -> Arrays:
        """A model as it is sent: the very same arrays for all clients of a round, so that they are packed once."""
        if self.config.federation.precision == "float32":
            return weights
        whole, half = self._halved.get(label, (None, {}))
        if whole is not weights:
            half = to_half(weights)
            self._halved[label] = weights, half
        return half

    def _broadcast(self, label: str, method_state: Arrays) -> Arrays:
        """What the method sends beside the model, again the very same arrays for all."""
        known, arrays = self._sent.get(label, (None, {}))
        if known is not method_state:
            arrays = self.hooks.broadcast(method_state)
            self._sent[label] = method_state, arrays
        return arrays

"""What clients are asked for: a release (P2, P3) and local training (T1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fedaux.algorithms.learners import Learners
from fedaux.algorithms.public_data import PublicData
from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import METHODS
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
            epochs=config.local.epochs,
            lr=config.local.lr,
            batch_size=config.local.batch_size,
            mu=config.local.mu if METHODS[config.method].proximal else 0.0,
            seed=derive_seed(config.seed, "batches", client, round_),
            h0=self.public.h0[spec.label].hash if config.head_only else "",
            heard=state.heard(client),
            extractor=self._extractor(state, client) if config.head_only else {},
            weights=self._on_the_wire(spec.label, state.weights[spec.label]),
        )

    def _extractor(self, state: RunState, client: str) -> Arrays:
        """h0 itself, or nothing where the client has its features already or a copy of the published encoder."""
        label = self.spec_of(client).label
        own_copy = METHODS[self.config.method].pretrained and published_weights(self.learners.extractors[label])
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

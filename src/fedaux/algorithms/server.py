"""What the server holds and computes: public and test data, one resident model per prototype, its phases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.algorithms.aggregate import Ensemble
from fedaux.algorithms.distill import distill
from fedaux.algorithms.evaluation import confusion
from fedaux.algorithms.hooks import Hooks, hooks_of
from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import Method, find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import cache_folder
from fedaux.core.messages import Arrays, PrepareOrder, TrainOrder
from fedaux.core.progress import FeaturesProgress, OnProgress, PretrainingProgress, no_progress
from fedaux.core.rng import derive_seed, numpy_stream, torch_stream
from fedaux.data.auxiliary import AuxSplit
from fedaux.data.federated import client_names, open_public
from fedaux.data.records import Records
from fedaux.models import Prototype, build, flatten_state, linear_head, load_state, published_weights, to_half
from fedaux.models.inference import predict, transform_rows
from fedaux.pretraining.store import load_or_pretrain
from fedaux.pretraining.trainer import EpochMetrics
from fedaux.privacy.module_validation import validate_module
from fedaux.scoring.base import Reference, Scorer
from fedaux.scoring.class_sums import pool
from fedaux.scoring.closed_form import discriminant_head, set_head
from fedaux.scoring.feature_cache import FeatureCache
from fedaux.scoring.frozen_extractor import H0
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.teacher_weights import Certainty, trusted


class DivergedError(FedauxError, ArithmeticError):
    """Training that left the real numbers; nothing of it is saved."""

    code = Exit.DIVERGED


@dataclass
class Server:
    config: Config
    aux: Records
    test: Records
    classes: int
    clients: Sequence[str]
    cache: Path
    on_progress: OnProgress = field(default=no_progress, repr=False)
    h0: dict[str, H0] = field(default_factory=dict, repr=False)  # see `take_up`
    _seen: dict[str, tuple[Records, Records]] = field(default_factory=dict, repr=False)
    _halved: dict[str, tuple[Arrays, Arrays]] = field(default_factory=dict, repr=False)  # see `on_the_wire`
    _broadcast: dict[str, tuple[Arrays, Arrays]] = field(default_factory=dict, repr=False)  # see `broadcast`

    @cached_property
    def method(self) -> Method:
        return find_method(self.config.method)

    @cached_property
    def hooks(self) -> Hooks:
        return hooks_of(self.config.method, dict(self.config.method_options))

    @cached_property
    def split(self) -> AuxSplit:
        return AuxSplit.draw(len(self.aux), self.config.aux.negatives, numpy_stream(self.config.seed, "aux"))

    @cached_property
    def distill_set(self) -> Records:
        return self.aux.take(self.split.distill)

    @cached_property
    def models(self) -> dict[str, Prototype]:
        """One resident network per prototype: teachers, students and tests all pass through it in turn."""
        seed = self.config.seed
        return {
            p.label: build(p, self.test.shape, self.classes, derive_seed(seed, "init", p.label))
            for p in self.config.prototypes
        }

    @cached_property
    def learners(self) -> dict[str, Prototype]:
        """What is trained, averaged and distilled: the networks, or in linear mode their heads alone."""
        if not self.config.head_only:
            return self.models
        heads = {label: linear_head(model.width, self.classes) for label, model in self.models.items()}
        for label, head in heads.items():
            load_state(head.head, flatten_state(self.models[label].head))
        return heads

    @cached_property
    def scorer(self) -> Scorer:
        return make_scorer(self.config.privacy, self.classes)

    @cached_property
    def prototype_of(self) -> dict[str, PrototypeSpec]:
        """Prototypes are dealt to the clients in turn."""
        dealt = self.config.prototypes
        return {client: dealt[i % len(dealt)] for i, client in enumerate(self.clients)}

    # P1

    def initial_state(self) -> RunState:
        """Random or pre-trained weights, and what scorers publish if the method has any."""
        for spec in self.config.prototypes:
            if self.method.pretrained and (
                self.config.pretrain.epochs > 0 or published_weights(self.models[spec.label].features)
            ):
                self.pretrain(spec)
        if self.config.privacy.private_training:
            for model in self.learners.values():
                validate_module(model, training=True)
        weights = {label: flatten_state(model) for label, model in self.learners.items()}
        kept = {label: self.hooks.server_state(arrays["parameters"]) for label, arrays in weights.items()}
        if not (self.method.scores or self.config.head_only):
            return RunState(self.config, 0, weights, method_state=kept)
        for model in self.models.values():
            validate_module(model.features)  # every client would refuse it, and keep the reason to itself
        extractors = {label: flatten_state(model.features) for label, model in self.models.items()}
        state = RunState(self.config, 0, weights, extractors, method_state=kept)
        if not self.method.scores:
            return state
        self.take_up(state)
        public = {
            label: self.scorer.publish(h0.features(self.aux).take(self.split.negatives).gather())
            for label, h0 in self.h0.items()
        }
        return replace(state, public=public)

    def pretrain(self, spec: PrototypeSpec) -> Path:
        """Give a prototype its pre-trained extractor, and say where that is kept."""
        config, progress = self.config.pretrain, partial(PretrainingProgress, spec.label)

        def watch(epoch: EpochMetrics) -> None:
            figures = epoch.loss, epoch.quality.rank, epoch.views_per_second
            self.on_progress(progress(epoch.epoch, config.epochs, "training", *figures))

        if published_weights(self.models[spec.label].features):
            self.models[spec.label].features.restore()  # type: ignore[operator]
            self.on_progress(progress(1, 1, "published"))
            return Path(published_weights(self.models[spec.label].features))
        path, known = load_or_pretrain(spec, self.models[spec.label], self.aux, config, self.cache, watch)
        if known:
            self.on_progress(progress(config.epochs, config.epochs, "cache"))
        return path

    def take_up(self, state: RunState) -> None:
        """Before any round: each prototype's h0, and in linear mode what the heads will see of it."""
        specs = {spec.label: spec for spec in self.config.prototypes}
        for label, arrays in state.extractors.items():
            if label in self.h0 and self.h0[label].arrays is arrays:
                continue
            cache = FeatureCache(self.cache, on_progress=partial(self.report_features, label))
            self.h0[label] = H0(specs[label], self.models[label].features, arrays, cache)
            if self.config.head_only:
                distill = self.h0[label].features(self.aux).take(self.split.distill)
                self._seen[label] = distill, self.h0[label].features(self.test)

    def report_features(self, label: str, done: int, total: int) -> None:
        self.on_progress(FeaturesProgress(label, done, total))

    def seen(self, label: str) -> tuple[Records, Records]:
        """(D_distill, test) as this prototype's learner sees them."""
        return self._seen.get(label, (self.distill_set, self.test))

    def extractor_for(self, state: RunState, client: str) -> Arrays:
        """h0 itself, or nothing where the client has its features already or a copy of the published encoder."""
        label = self.prototype_of[client].label
        own_copy = self.method.pretrained and published_weights(self.models[label].features)
        return {} if own_copy or client in state.prepared else state.extractors[label]

    # P2, P3

    def prepare_order(self, state: RunState, client: str) -> PrepareOrder:
        spec = self.prototype_of[client]
        public = state.public[spec.label]
        return PrepareOrder(
            client=client,
            prototype=spec.to_json(),
            scorer=self.scorer.name,
            classes=self.classes,
            size=self.scorer.size(public),
            h0=self.h0[spec.label].hash,
            heard=state.heard(client),
            extractor=self.extractor_for(state, client),
            public=public,
        )

    def certainty(self, state: RunState) -> Certainty:
        """Embeds the features of D⁻ and D_distill under each prototype's h0."""
        reference, embedded = {}, {}
        for label, public in state.public.items():
            embed = partial(self.scorer.embed, public)
            seen = self.h0[label].features(self.aux)
            reference[label] = Reference(transform_rows(seen.take(self.split.negatives), embed).astype(np.float64))
            embedded[label] = transform_rows(seen.take(self.split.distill), embed)
        labels = {client: spec.label for client, spec in self.prototype_of.items()}
        weights, share = self.config.teachers.weights, self.config.teachers.max_share
        return Certainty(self.scorer, weights, state.public, reference, embedded, labels, share)

    def closed_form(self, state: RunState, certainty: Certainty) -> RunState:
        """Heads from the releases at hand instead of random ones: an accurate start that costs no further privacy."""
        weights = dict(state.weights)
        for label, model in self.learners.items():
            clients = [client for client in sorted(state.releases) if self.prototype_of[client].label == label]
            known = [state.releases[client] for client in clients]
            if known:
                pooled = pool(trusted(known), self.classes)
                load_state(model, weights[label])
                set_head(model, *discriminant_head(state.public[label], certainty.reference[label], pooled))
                weights[label] = flatten_state(model)
        return replace(state, weights=weights)

    # T1

    def train_order(self, state: RunState, client: str) -> TrainOrder:
        spec, local, round_ = self.prototype_of[client], self.config.local, state.round + 1
        return TrainOrder(
            client=client,
            round=round_,
            prototype=spec.to_json(),
            classes=self.classes,
            method=self.config.method,
            method_options=json.dumps(dict(self.config.method_options)),
            epochs=local.epochs,
            batch_size=local.batch_size,
            optimizer=local.optimizer,
            lr=local.lr_at(round_, self.config.rounds),
            momentum=local.momentum,
            weight_decay=local.weight_decay,
            mu=local.mu if self.method.proximal else 0.0,
            seed=derive_seed(self.config.seed, "batches", client, round_),
            h0=self.h0[spec.label].hash if self.config.head_only else "",
            heard=state.heard(client),
            run=self.config.run_id,
            last_round=state.last_round.get(client, 0),
            extractor=self.extractor_for(state, client) if self.config.head_only else {},
            weights=self.on_the_wire(spec.label, state.weights[spec.label]),
            broadcast=self.broadcast(spec.label, state.method_state[spec.label]),
        )

    def on_the_wire(self, label: str, weights: Arrays) -> Arrays:
        """A model as it is sent: the very same arrays for all clients of a round, so that they are packed once."""
        if self.config.federation.precision == "float32":
            return weights
        whole, half = self._halved.get(label, (None, {}))
        if whole is not weights:
            half = to_half(weights)
            self._halved[label] = weights, half
        return half

    def broadcast(self, label: str, method_state: Arrays) -> Arrays:
        """What the method sends beside the model: the very same arrays for all, as in `on_the_wire`."""
        known, arrays = self._broadcast.get(label, (None, {}))
        if known is not method_state:
            arrays = self.hooks.broadcast(method_state)
            self._broadcast[label] = method_state, arrays
        return arrays

    # T2

    def teach(self, label: str, weights: Arrays, ensemble: Ensemble, importance: NDArray[np.float64] | None) -> None:
        """Add one teacher's weighted predictions on D_distill; one that makes no sense adds nothing and raises."""
        load_state(self.learners[label], weights)
        logits = predict(self.learners[label], self.seen(label)[0])
        ensemble.add(logits, np.ones(len(logits)) if importance is None else importance)

    # T3

    def distil(self, weights: dict[str, Arrays], ensemble: Ensemble, round_: int) -> tuple[dict[str, Arrays], float]:
        """One student per prototype, each from its own average, all from the one ensemble."""
        students, losses, config = {}, [], self.config.distill
        for label, model in self.learners.items():
            load_state(model, weights[label])
            generator = torch_stream(self.config.seed, "distill", label, round_)
            losses.append(
                distill(
                    model,
                    self.seen(label)[0],
                    ensemble,
                    epochs=config.epochs,
                    lr=config.lr,
                    batch_size=config.batch_size,
                    generator=generator,
                )
            )
            students[label] = flatten_state(model)
        if not np.isfinite(losses).all():
            raise DivergedError("distillation diverged: lower distill.lr and go on with `fedaux resume`")
        return students, float(np.mean(losses))

    def confusions(self, weights: dict[str, Arrays]) -> dict[str, NDArray[np.int64]]:
        """Test records of each prototype by true (rows) and predicted class. Nothing is ever chosen by it."""
        found = {}
        for label, model in self.learners.items():
            load_state(model, weights[label])
            found[label] = confusion(model, self.seen(label)[1], self.classes)
        return found


def make_server(config: Config, on_progress: OnProgress = no_progress, cache: Path | None = None) -> Server:
    data, names = open_public(config), client_names(config)
    return Server(config, data.aux, data.test, len(data.classes), names, cache or cache_folder(), on_progress)

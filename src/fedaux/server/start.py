"""Before the first round: pre-trained extractors (P1), statistics of their features, and what the scorer publishes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.io import cache_folder
from fedaux.core.progress import WorkProgress
from fedaux.models import flatten_state, published_weights
from fedaux.models.registry import carried_weights
from fedaux.pretraining.store import load_or_pretrain
from fedaux.pretraining.trainer import EpochMetrics
from fedaux.privacy.module_validation import validate_module
from fedaux.server.run_state import RunState
from fedaux.server.server import Server


def initial_state(server: Server) -> RunState:
    """Random or pre-trained weights, and what scorers publish if the method has any."""
    config, learners = server.config, server.learners
    if not server.method.pretrained:
        refuse_carried_weights(server)
    for spec in config.prototypes:
        if server.method.pretrained and (
            config.pretrain.epochs > 0 or published_weights(learners.extractors[spec.label])
        ):
            pretrain_extractor(server, spec)
    if config.privacy.private_training:
        for learner in learners.trained.values():
            validate_module(learner, training=True)
    weights = learners.weights()
    kept = {label: server.hooks.server_state(arrays["parameters"]) for label, arrays in weights.items()}
    state = RunState(config, 0, weights, method_state=kept, dealt=server.site_labels)
    on_features = config.head_only or config.analytic_head is not None
    if not (config.releases or on_features):
        return state
    for extractor in learners.extractors.values():
        validate_module(extractor)  # every client would refuse it, and keep the reason to itself
    state = replace(state, extractors={label: flatten_state(module) for label, module in learners.extractors.items()})
    server.restore(state)
    if on_features and config.head_features == "standardised":
        state = replace(state, standardisation=server.public.standardisation())
    return replace(state, public=server.public.publish(server.scorer)) if config.releases else state


def refuse_carried_weights(server: Server) -> None:
    """A method from random weights whose network brings its own would be another method under the wrong name."""
    for spec in server.config.prototypes:
        carried = carried_weights(spec, server.public.aux.shape, server.learners.extractors[spec.label])
        if carried:
            method = server.config.method
            raise ConfigError(
                f"prototype {spec.name!r} brings weights of its own, {carried[0]} for one, whatever the seed is; "
                f"{server.method.label} starts from random ones. Set method = '{method}+p' to start from yours, or "
                "load them in a method `restore()` of the extractor, with their folder as `published_weights`: then "
                f"{method} starts at random and {method}+p from them."
            )


def pretrain_extractor(server: Server, spec: PrototypeSpec) -> Path:
    """P1: give a prototype its pre-trained extractor, and say where that is kept."""
    config = server.config.pretrain
    network, extractor = server.learners.networks[spec.label], server.learners.extractors[spec.label]

    def report(epoch: int, epochs: int, note: str) -> None:
        server.on_progress(WorkProgress(f"pre-training {spec.label}", epoch, epochs, note, "pretrain"))

    def watch(epoch: EpochMetrics) -> None:
        figures = f"loss {epoch.loss:.3f}, rank {epoch.quality.rank:.1f}, {epoch.views_per_second:,.0f} views/s"
        report(epoch.epoch, config.epochs, figures)

    if published_weights(extractor):
        extractor.restore()  # type: ignore[operator]
        report(1, 1, "published weights")
        return Path(published_weights(extractor))
    path, known = load_or_pretrain(spec, network, server.public.aux, config, server.cache or cache_folder(), watch)
    if known:
        report(config.epochs, config.epochs, "from the cache")
    return path

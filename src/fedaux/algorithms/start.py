"""Before the first round: pre-trained extractors (P1), what the scorer publishes, and heads in closed form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedaux.algorithms.run_state import RunState
from fedaux.algorithms.server import Server
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.io import cache_folder
from fedaux.models import Prototype, dump, origin
from fedaux.pretraining.store import pretrained
from fedaux.pretraining.trainer import Epoch
from fedaux.privacy.apart import check_records_apart
from fedaux.scoring.class_sums import pool
from fedaux.scoring.closed_form import discriminant_head, set_head
from fedaux.scoring.teacher_weights import PublicEmbedding, trusted


def initial_state(server: Server) -> RunState:
    """Random or pre-trained weights, and what scorers publish if the method has any."""
    config, learners = server.config, server.learners
    for spec in config.prototypes:
        if server.method.pretrained and (config.pretrain.epochs > 0 or origin(learners.extractors[spec.label])):
            pretrain_extractor(server, spec)
    if config.privacy.private_training:
        for learner in learners.trained.values():
            check_records_apart(learner, training=True)
    state = RunState(config, 0, learners.weights())
    if not (server.method.scores or config.head_only):
        return state
    for extractor in learners.extractors.values():
        check_records_apart(extractor)  # every client would refuse it, and keep the reason to itself
    state = replace(state, extractors={label: dump(module) for label, module in learners.extractors.items()})
    if not server.method.scores:
        return state
    server.restore(state)
    return replace(state, public=server.public.publish(server.scorer))


def pretrain_extractor(server: Server, spec: PrototypeSpec) -> Path:
    """P1: give a prototype its pre-trained extractor, and say where that is kept."""
    config, what = server.config.pretrain, f"pretrain {spec.label}"
    network, extractor = server.learners.networks[spec.label], server.learners.extractors[spec.label]

    def watch(epoch: Epoch) -> None:
        note = f"loss {epoch.loss:.3f}, rank {epoch.quality.rank:.1f}, {epoch.views_per_second:,.0f} views/s"
        server.tell(what, epoch.epoch, config.epochs, note)

    if origin(extractor):
        extractor.restore()  # type: ignore[operator]
        server.tell(what, 1, 1, "published weights")
        return Path(origin(extractor))
    path, known = pretrained(spec, network, server.public.aux, config, server.cache or cache_folder(), watch)
    if known:
        server.tell(what, config.epochs, config.epochs, "from the cache")
    return path


def closed_form_heads(server: Server, state: RunState, embedding: PublicEmbedding) -> RunState:
    """Heads from the releases at hand instead of random ones: an accurate start that costs no further privacy."""
    weights = dict(state.weights)
    for label in weights:
        clients = [client for client in sorted(state.releases) if server.label_of(client) == label]
        if clients:
            pooled = pool(trusted([state.releases[client] for client in clients]), server.classes)
            head = discriminant_head(state.public[label], embedding.reference[label], pooled)
            learner = server.learners.loaded(label, weights[label])
            assert isinstance(learner, Prototype)
            set_head(learner, *head)
            weights[label] = dump(learner)
    return replace(state, weights=weights)

"""T2 at a client: its own model on its own copy of D_distill, weighted with what the
server broadcasts.

Logits on public data follow from the model that is sent anyway, and the weights from
the client's own release.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaux.client.loading import load_records, ordered_extractor
from fedaux.client.site import Site
from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays, Vector
from fedaux.core.failures import OrderError
from fedaux.data.federated import open_auxiliary
from fedaux.data.records import Records
from fedaux.messages import PrepareOrder, Teaching, TrainOrder
from fedaux.methods.contribution import Ensemble
from fedaux.methods.teachers import logit_weights, teacher_logits
from fedaux.models.inference import transform_rows
from fedaux.scoring.base import PortableScorer
from fedaux.scoring.features import FeatureCache
from fedaux.scoring.pooled import split_fit
from fedaux.scoring.public_data import PublicData
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.teacher_weights import client_weights

# of all auxiliary data, by folder, h0 and D_distill
_features: dict[tuple[Path, str, str], Records] = {}


def teach(order: TrainOrder, site: Site, model: nn.Module, weights: Arrays) -> Arrays:
    """Compute this client's part of the ensemble, {} if none is asked for. `weights`
    are the ones that it sends.
    """
    if not order.teaching:
        return {}
    teaching = Teaching.from_json(order.teaching)
    public = ordered_public_data(site.config, teaching)
    drawn = public.part(teaching.examples, order.round)

    def rows(records: Records) -> Records:
        return records if drawn is None else records.take(drawn)

    inputs = rows(
        public_features(order, site, public, order.h0) if order.h0 else public.distill
    )
    logits = teacher_logits(model, weights, inputs)
    if not teaching.scorer:
        return Ensemble.of(
            logits, logit_weights(find_method(order.method), logits)
        ).to_arrays()
    features = rows(public_features(order, site, public, teaching.h0))
    return Ensemble.of(logits, own_weights(order, site, teaching, features)).to_arrays()


def prepare_teaching(order: PrepareOrder, site: Site) -> None:
    """Compute features of D_distill while the extractor is loaded; later orders score
    them.
    """
    if site.config.teachers.run_on == "clients":
        public_features(order, site, own_public_data(site.config), order.h0)


def own_weights(
    order: TrainOrder, site: Site, teaching: Teaching, features: Records
) -> NDArray[np.floating]:
    """Compute s_i(x) on rows of D_distill, given their features under h0."""
    privacy = site.config.privacy
    scorer = make_scorer(privacy, order.classes)
    if teaching.scorer != privacy.scorer or not isinstance(scorer, PortableScorer):
        raise OrderError(
            "Cannot teach: the order asks for weights of the scorer "
            f"{teaching.scorer!r}, which this client cannot make. Set the same "
            "privacy.scorer at the server and at every site."
        )
    embedded = transform_rows(features, partial(scorer.embed, order.public))
    shared = order.fit
    client_fit = order.client_fit
    # the fit of all clients: this one's classes are its own, and go no further than the
    # sum
    if order.sum:
        shared, pooled = split_fit(order.fit)
        client_fit = own_fit(
            pooled, shared["records"], load_records(site, order).labels
        )
    return client_weights(scorer, teaching.weights, embedded, shared, client_fit)


def own_fit(pooled: Arrays, records: Vector, labels: NDArray[np.int64]) -> Arrays:
    """Return a client's own fit: its own classes and size in place of those of all
    clients.

    Args:
        pooled: The fit of the pooled release.
        records: Of each class, at all clients, as the pooled release says.
        labels: Of the client's own records.
    """
    counts = np.bincount(labels[labels >= 0], minlength=len(records)).astype(np.float64)
    total = max(counts.sum(), 1.0)
    return {
        "shares": counts / total,
        "offset": pooled["offset"] + np.log(total / records.sum()),
    }


def ordered_public_data(config: Config, teaching: Teaching) -> PublicData:
    """Return the client's own public data, if they equal the server's."""
    if config.teachers.run_on != "clients":
        raise OrderError(
            "Cannot teach: the order asks this client to teach, and its settings have "
            "teachers.run_on = 'server'. Set teachers.run_on = 'clients' in them."
        )
    public = own_public_data(config)
    if public.distill_hash != teaching.distill:
        raise OrderError(
            f"Cannot teach: D_distill here has the hash {public.distill_hash}, at the "
            f"server {teaching.distill}. Set [aux] and seed of this client's settings "
            "to the server's, and use the same files."
        )
    return public


@lru_cache(maxsize=4)
def own_public_data(config: Config) -> PublicData:
    return PublicData(open_auxiliary(config), None, config.aux.negatives, config.seed)


def public_features(
    order: PrepareOrder | TrainOrder, site: Site, public: PublicData, h0: str
) -> Records:
    """Return features of D_distill under the extractor with this hash, computed once
    for all auxiliary data.
    """
    folder = site.feature_folder(order.client)
    key = folder, h0, public.distill_hash
    if key not in _features:
        # the client's account may be in it
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        device = site.config.device
        shape = public.aux.shape
        rows = FeatureCache(folder).features(
            h0, public.aux, lambda: ordered_extractor(order, h0, shape, device)
        )
        _features[key] = Records(rows).take(public.split.distill)
    return _features[key]

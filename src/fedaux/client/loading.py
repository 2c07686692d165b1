"""What a client loads for an order: its records, their features, and the ordered
model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import cast

from torch import nn

from fedaux.client.features import PrivateFeatureCache
from fedaux.client.held_out import split_of
from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.arrays import Arrays, fingerprint_arrays
from fedaux.core.failures import OrderError
from fedaux.core.io import DECODED, caching_in, delete_all_but_newest
from fedaux.core.rng import derive_seed
from fedaux.data.federated import open_private
from fedaux.data.records import Records
from fedaux.messages import DataOrder, LookOrder, SumsOrder, TrainOrder
from fedaux.models import (
    HeadFeatures,
    Prototype,
    build,
    flatten_state,
    linear_head,
    load_state,
    published_weights,
)
from fedaux.models.compute import place_by_settings
from fedaux.models.inference import Rows
from fedaux.scoring.features import extractor_hash

# files of a site's features: a server can name another extractor in every order
FEATURES_KEPT = 8


def load_records(site: Site, order: DataOrder) -> Records:
    """Load the private records that the client trains on: all that it does not hold
    out.
    """
    return split_of(site, order.client, load_all(site, order))[0]


def load_held_out(site: Site, order: LookOrder) -> Records:
    """Load the private records on which the client tests models."""
    return split_of(site, order.client, load_all(site, order))[1]


def load_all(site: Site, order: DataOrder) -> Records:
    """Load all private records: the client's part of the configured split, or those of
    its site.

    Data that a site decodes, above all images, are as private as the files, and stay in
    its vault.
    """
    if site.config.data.partition != "own":
        return open_private(site.config, order.client)[0]
    with caching_in(site.vault / DECODED):
        return open_private(site.config, order.client)[0]


def load_task(order: TrainOrder, site: Site) -> tuple[Prototype, Records]:
    """Load the ordered model and the rows it is trained on."""
    model, records = open_rows(order, site)
    load_ordered(model, order.weights)
    return model, records


def load_ordered(module: nn.Module, weights: Arrays) -> None:
    try:
        load_state(module, weights)
    except ValueError as error:
        raise OrderError(
            "Cannot load the order's weights: they are not those of its network "
            f"({error}). Set the same prototypes at the server and at every site."
        ) from error


def open_rows(order: TrainOrder, site: Site) -> tuple[Prototype, Records]:
    """Return the resident model and the client's records, or their features if only
    heads train: views of a pool.

    Private training computes on the CPU in float32, as do the features of private
    records.
    """
    records = load_records(site, order)
    device = site.config.device
    precision = site.config.precision
    if site.config.privacy.private_training:
        device = "cpu"
        precision = "float32"
    if not order.h0:
        model = cached_model(
            order.prototype, records.shape, order.classes, device, precision
        )
        return model, records
    return open_head(order, site, records, device)


def open_held_out(order: LookOrder, site: Site) -> tuple[Prototype, Records]:
    """Return the model of a look and the records held out, or their features if the
    model is a head. They compute on the CPU in float32, one record at a time.
    """
    records = load_held_out(site, order)
    if order.h0:
        model, records = open_head(order, site, records, "cpu")
    else:
        shape = records.shape
        model = cached_model(order.prototype, shape, order.classes, "cpu", "float32")
    load_ordered(model, order.weights)
    return model, records


def open_head(
    order: TrainOrder | LookOrder, site: Site, records: Records, device: str
) -> tuple[Prototype, Records]:
    """Return the resident head of an order, and the features of these records."""
    features = replace(records, x=features_of(order, site, Records(records.x)))
    statistics = fingerprint_arrays(order.standardisation)
    model = cached_head(
        features.x.shape[1], order.classes, order.random_features, statistics, device
    )
    standardise(cast(HeadFeatures, model.features), order)
    return model, features


def load_mapped(order: SumsOrder, site: Site) -> tuple[HeadFeatures, Records]:
    """Return the head's map of features, and the client's records as features of h0."""
    records = load_records(site, order)
    features = replace(records, x=features_of(order, site, Records(records.x)))
    mapped = HeadFeatures(features.x.shape[1], order.random_features)
    standardise(mapped, order)
    if mapped.width != order.width:
        raise OrderError(
            f"Cannot compute a head: the order declares that there are {order.width} "
            f"features, there are {mapped.width}. Set the same prototypes and "
            "random_features at the server and at every site."
        )
    return mapped, features


def standardise(
    features: HeadFeatures, order: SumsOrder | TrainOrder | LookOrder
) -> None:
    try:
        features.standardise(order.standardisation)
    except ValueError as error:
        raise OrderError(
            "Cannot compute a head: the order's statistics of features cannot be used "
            f"({error}). Start the run again."
        ) from error


def load_features(order: DataOrder, site: Site) -> Rows:
    """Return h0's features of the client's own data, computed once and kept where only
    the client can read them.
    """
    return features_of(order, site, load_records(site, order))


def features_of(order: DataOrder, site: Site, records: Records) -> Rows:
    folder = site.feature_folder(order.client)
    cache = PrivateFeatureCache(folder)
    features = cache.features(
        order.h0, records, lambda: ordered_extractor(order, order.h0, records.shape)
    )
    if not site.is_simulated:
        delete_all_but_newest(folder, "features-*.npy", FEATURES_KEPT)
    return features


def ordered_extractor(
    order: DataOrder,
    h0: str,
    shape: tuple[int, ...],
    device: str = "cpu",
    precision: str = "float32",
) -> nn.Module:
    """Return h0 from the order, or this site's own copy of a published encoder. Its
    hash must match bit for bit.
    """
    # the head plays no part here
    module = cached_model(order.prototype, shape, 2, device, precision).features
    if order.extractor:
        load_ordered(module, order.extractor)
    elif published_weights(module):
        module.restore()  # type: ignore[operator]
    elif flatten_state(module):  # an extractor without weights needs none
        raise OrderError(
            "Cannot compute features: this client no longer has the features of its "
            "data, and was not sent the extractor. Start the run again, which sends it."
        )
    if extractor_hash(flatten_state(module), order.prototype) != h0:
        raise OrderError(
            "Cannot compute features: the extractor here is not the one asked for, "
            f"{h0}. Install the same release of its weights at the server and at every "
            "site."
        )
    return module


@lru_cache(maxsize=8)
def cached_model(
    prototype: str, shape: tuple[int, ...], classes: int, device: str, precision: str
) -> Prototype:
    """Return the one resident model of a prototype, on its device. Every order loads
    its own weights into it.
    """
    model = build(
        PrototypeSpec.from_json(prototype), shape, classes, derive_seed(0, "resident")
    )
    return place_by_settings(model, device, precision, shape)


@lru_cache(maxsize=8)
def cached_head(
    width: int, classes: int, random: int, statistics: str, device: str
) -> Prototype:
    """Return one head per hash of its features' `statistics`: clients of several
    prototypes train in parallel.
    """
    return place_by_settings(linear_head(width, classes, random), device, "float32")

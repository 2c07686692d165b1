"""Prototypes f = head ∘ features: a registry of networks, their state as flat arrays,
and batched inference.
"""

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import encoders, published  # noqa: F401  (importing registers them)
from fedaux.models.flat_state import flatten_state, load_state, state_sizes, to_half
from fedaux.models.networks import Extractor, make_norm
from fedaux.models.registry import (
    HeadFeatures,
    Prototype,
    available,
    build,
    linear_head,
    published_weights,
    register,
)

__all__ = [
    "Extractor",
    "HeadFeatures",
    "Prototype",
    "PrototypeSpec",
    "available",
    "build",
    "flatten_state",
    "linear_head",
    "load_state",
    "make_norm",
    "published_weights",
    "register",
    "state_sizes",
    "to_half",
]

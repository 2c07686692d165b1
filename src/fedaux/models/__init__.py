"""Prototypes f = head ∘ features: the contract, a registry of networks, and their weights as flat arrays."""

from fedaux.config.prototype import Option, PrototypeSpec
from fedaux.models import (
    mobilenet,  # noqa: F401  (importing them registers them)
    resnet,  # noqa: F401  (importing them registers them)
    shufflenet,  # noqa: F401  (importing them registers them)
    small,  # noqa: F401  (importing them registers them)
    text,  # noqa: F401  (importing them registers them)
)
from fedaux.models.flat_state import Weights, flatten_state, load_state, state_sizes, to_half
from fedaux.models.layers import Extractor, make_norm
from fedaux.models.registry import Prototype, available, build, linear_head, published_weights, register

__all__ = [
    "Extractor",
    "Option",
    "Prototype",
    "PrototypeSpec",
    "Weights",
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

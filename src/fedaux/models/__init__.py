"""Prototypes f = head ∘ features: the contract, a registry of networks, and their weights as flat arrays."""

from fedaux.config.prototype import Option, PrototypeSpec
from fedaux.models import (
    mobilenet,  # noqa: F401  (importing them registers them)
    resnet,  # noqa: F401  (importing them registers them)
    shufflenet,  # noqa: F401  (importing them registers them)
    small,  # noqa: F401  (importing them registers them)
    text,  # noqa: F401  (importing them registers them)
)
from fedaux.models.flat_state import Weights, dump, halved, layout, load
from fedaux.models.layers import Extractor, make_norm
from fedaux.models.registry import Prototype, available, build, linear_head, origin, register

__all__ = [
    "Extractor",
    "Option",
    "Prototype",
    "PrototypeSpec",
    "Weights",
    "available",
    "build",
    "dump",
    "halved",
    "layout",
    "linear_head",
    "load",
    "make_norm",
    "origin",
    "register",
]

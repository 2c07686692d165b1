"""Prototypes f = head ∘ features: the contract, a registry of networks, and their weights as flat arrays."""

from fedaux.prototypes import mobilenet, resnet, shufflenet, small, text  # noqa: F401  (importing them registers them)
from fedaux.prototypes.contract import Option, Prototype, PrototypeSpec, available, build, linear_head, origin, register
from fedaux.prototypes.layers import Extractor, make_norm
from fedaux.prototypes.weights import Weights, dump, halved, layout, load

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

"""An order as a file: a site that takes part in a secure sum keeps the order until its
vector is asked for.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from fedaux.core.arrays import Arrays
from fedaux.messages.checks import check_order
from fedaux.messages.declaration import ORDERS, fields_of
from fedaux.messages.orders import DataOrder

_SCALARS = "|scalars"
_KINDS = {kind.__name__: kind for kind in ORDERS}


def order_to_bytes(order: DataOrder) -> bytes:
    """Return an order's fields in the format of safetensors. The scalars are one array
    of bytes.
    """
    scalars: dict[str, Any] = {"kind": type(order).__name__}
    tensors: Arrays = {}
    for field in fields_of(type(order)):
        value = getattr(order, field.name)
        if not field.has_arrays:
            scalars[field.name] = value
            continue
        for name, array in value.items():
            # a scalar keeps its shape
            tensors[f"{field.name}|{name}"] = np.asarray(array, order="C")
    tensors[_SCALARS] = np.frombuffer(json.dumps(scalars).encode(), np.uint8)
    return save(tensors)


def order_from_bytes(content: bytes) -> DataOrder:
    """Read what `order_to_bytes` wrote, and check it again."""
    tensors = load(content)
    scalars = json.loads(tensors.pop(_SCALARS).tobytes())
    kind = _KINDS[scalars.pop("kind")]
    values: dict[str, Any] = {
        **scalars,
        **{field.name: {} for field in fields_of(kind) if field.has_arrays},
    }
    for key, array in tensors.items():
        field, _, name = key.partition("|")
        values[field][name] = array
    order: DataOrder = kind(**values)
    check_order(order)
    return order

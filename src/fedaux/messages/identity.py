"""The identity of an order: one hash that everything else goes by.

Stored answers, the owner's log, an order that is asked again, and what the sites of a
secure sum sign: all use `identity`, a hash of 256 bits of everything that the server
must ask all sites alike. `question` adds what is a site's own and decides its answer.
"""

from __future__ import annotations

from typing import Any

from fedaux.core.arrays import Arrays, fingerprint_arrays
from fedaux.messages.declaration import Asked, Part, fields_of
from fedaux.messages.orders import MESSAGE_VERSION, DataOrder, Order


def identity(order: Order) -> str:
    """Hash all that is the same for every site: two sites with the same identity were
    asked the same.
    """
    return _hash(order, [type(order).__name__, MESSAGE_VERSION], Part.RUN, Part.ROUND)


def question(order: Order) -> str:
    """Hash all that decides what a site answers: the same question gets the same
    answer.
    """
    return _hash(order, identity(order), Part.SITE)


def run_facts(order: DataOrder) -> dict[str, Any]:
    """Return what of an order is fixed for the run, for a plan: scalars as they are,
    arrays by their hash.
    """
    scalars, arrays = _parts(order, Part.RUN)
    hashes = {
        name: fingerprint_arrays(value) for name, value in arrays.items() if value
    }
    return {**scalars, **hashes}


def _hash(order: Order, start: object, *parts: Part) -> str:
    scalars, arrays = _parts(order, *parts)
    names = sorted(arrays)
    return fingerprint_arrays(
        *(arrays[name] for name in names), facts=[start, sorted(scalars.items()), names]
    )


def _parts(order: Order, *parts: Part) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """Return the scalars and the arrays of an order that have one of these marks."""
    scalars: dict[str, Any] = {}
    arrays: dict[str, Arrays] = {}
    for field in fields_of(type(order)):
        if not isinstance(field.marks, Asked) or field.marks.part not in parts:
            continue
        kept = arrays if field.has_arrays else scalars
        kept[field.name] = getattr(order, field.name)
    return scalars, arrays

"""Messages of this version and of the one before, so that a server and its sites need not be upgraded on one day.

The first message to a node, `HelloOrder`, goes out in the version before. The node's answer says which version it
speaks, and it is asked in that one from then on. A node answers in the version in which it is asked.
"""

from __future__ import annotations

import json
from typing import Any

from fedaux.config.parsing import ConfigError
from fedaux.core.messages import Hello, PrepareOrder, TrainOrder

VERSION = 9
PREVIOUS = 8
SPOKEN = (PREVIOUS, VERSION)
# fields that the version before does not have, and what they are where they are missing
ADDED: dict[type, dict[str, Any]] = {
    Hello: {"speaks": PREVIOUS},
    PrepareOrder: {"heard_signature": ""},
    TrainOrder: {"heard_signature": "", "freeze_batch_norm": False},
}
MAY_BE_DROPPED = {"heard_signature"}  # all others say what to do: an order without them would be another order


def common_version(speaks: int) -> int:
    """The newest version that this side and one that `speaks` this version both know."""
    return min(speaks, VERSION)


def to_previous(kind: type, scalars: dict[str, Any]) -> dict[str, Any]:
    """A message of this version, as the version before reads it.

    It ignores scalars that it does not know, which is how `Hello` can say that its node speaks a newer one.
    """
    added = ADDED.get(kind, {}) if kind is not Hello else {}
    needed = [name for name in added.keys() - MAY_BE_DROPPED if scalars[name] != added[name]]
    if needed:
        raise ConfigError(f"{', '.join(needed)}: not known to a site that is a version behind; upgrade the site.")
    older = {name: value for name, value in scalars.items() if name not in added}
    if "account" in older:  # refused with an entry that is not known
        older["account"] = _unsigned(older["account"])
    return {**older, "version": PREVIOUS}


def from_previous(kind: type, scalars: dict[str, Any]) -> dict[str, Any]:
    return {**ADDED.get(kind, {}), **scalars}


def _unsigned(account: str) -> str:
    try:
        return json.dumps({name: value for name, value in json.loads(account).items() if name != "signature"})
    except (ValueError, AttributeError):  # not an account, which is the reader's business
        return account

"""The last step of a secure sum: sites send shares of secrets, with which the server
takes the masks off the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.privacy.curve25519 import public_key
from fedaux.privacy.secure_sum.keys import Keys
from fedaux.privacy.secure_sum.masks import (
    Residues,
    add_pair_mask,
    own_mask,
    pair_secret,
    partners_info,
)
from fedaux.privacy.secure_sum.settings import SecureSumError, SumSettings
from fedaux.privacy.secure_sum.shamir import combine, lagrange_weights

# begin the name of a share in a message, before the site whose secret it is of
_SEED = "seed "
_KEY = "key "


@dataclass(frozen=True)
class Unmasking:
    """Step 4, from a site: its shares of the secrets of others. No site is in both."""

    sender: str
    seeds: Mapping[str, bytes]  # of survivors
    mask_keys: Mapping[str, bytes]  # of the lost

    def to_bytes(self) -> dict[str, bytes]:
        """Return the shares by kind and site."""
        seeds = {f"{_SEED}{name}": share for name, share in self.seeds.items()}
        keys = {f"{_KEY}{name}": share for name, share in self.mask_keys.items()}
        return seeds | keys

    @classmethod
    def from_bytes(cls, sender: str, shares: Mapping[str, bytes]) -> Unmasking:
        """Read what `to_bytes` wrote."""
        return cls(sender, _of_kind(_SEED, shares), _of_kind(_KEY, shares))


def _of_kind(kind: str, shares: Mapping[str, bytes]) -> dict[str, bytes]:
    return {
        name.removeprefix(kind): share
        for name, share in shares.items()
        if name.startswith(kind)
    }


def unmasked_sum(
    settings: SumSettings,
    keys: Mapping[str, Keys],
    masked: Mapping[str, Residues],
    sharing: Iterable[str],
    replies: Sequence[Unmasking],
) -> NDArray[np.int64]:
    """The server's last step: the sum of the vectors of all sites in `masked`.

    Args:
        settings: Of the sum.
        keys: Of all sites, from step 0.
        masked: The vector of each survivor, from step 2.
        sharing: Every site whose shares were handed on in step 1: their masks are in
            the survivors' vectors.
        replies: Of step 4, at least t.
    """
    senders = {unmasking.sender for unmasking in replies}
    if len(senders) < settings.threshold:
        raise SecureSumError(
            f"Cannot remove the masks: {len(replies)} sites answered the last step, "
            f"{settings.threshold} are needed. Start the run again when more sites are "
            "connected."
        )
    by_position = sorted(replies, key=lambda reply: settings.position(reply.sender))
    used = by_position[: settings.threshold]
    points = [settings.position(unmasking.sender) for unmasking in used]
    weights = lagrange_weights(points)
    partners = partners_info(settings, keys, sharing)
    total = np.zeros(settings.length, np.uint64)
    for vector in masked.values():
        total += vector
    for name in masked:
        seed = combine([unmasking.seeds[name] for unmasking in used], weights)
        total -= own_mask(seed, partners, settings.length)
    # what the masks that survivors share with lost sites have left in the sum
    for lost in sorted(set(sharing) - set(masked)):
        mask_key = combine([unmasking.mask_keys[lost] for unmasking in used], weights)
        if public_key(mask_key) != keys[lost].mask_key:
            raise SecureSumError(
                f"Cannot remove the masks: the shares of {lost} do not add up to its "
                "key, because a site has sent a wrong one. Start the run again."
            )
        for survivor in masked:
            secret = pair_secret(mask_key, keys[lost], keys[survivor], partners)
            add_pair_mask(total, secret, lost, survivor)
    return total.view(np.int64)

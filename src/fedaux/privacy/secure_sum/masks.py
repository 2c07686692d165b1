"""Masks of a secure sum: a site's own, and one for each pair of sites, which cancel in
the sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedaux.privacy.curve25519 import agreement_key, agreement_secret
from fedaux.privacy.secure_sum.keys import Keys, derive, length_prefixed
from fedaux.privacy.secure_sum.settings import SumSettings

Residues = NDArray[np.uint64]


def partners_info(
    settings: SumSettings, keys: Mapping[str, Keys], sharing: Iterable[str]
) -> bytes:
    """Return what binds masks to the sum, and to the names and keys of all sites that
    mask with each other.
    """
    info = hashlib.sha256(settings.context)
    for name in sorted(sharing):
        info.update(length_prefixed(name))
        info.update(keys[name].mask_key)
        info.update(keys[name].share_key)
    return info.digest()


def own_mask(seed: bytes, partners: bytes, length: int) -> Residues:
    """Return a site's own mask."""
    return keystream(derive(seed, b"own" + partners), length)


def pair_secret(private: bytes, site: Keys, other: Keys, partners: bytes) -> bytes:
    """Return the secret of a pair's masks, the same for both sites: `private` is the
    private half of `site.mask_key`.
    """
    shared = agreement_secret(private).exchange(agreement_key(other.mask_key))
    return derive(shared, mask_info(site, other, partners))


def mask_info(site: Keys, other: Keys, partners: bytes) -> bytes:
    """Return what binds a pair's masks to the names and keys of the pair, and to the
    sum with all of its sites.
    """
    first, second = sorted((site, other), key=lambda keys: keys.sender)
    names = length_prefixed(first.sender) + length_prefixed(second.sender)
    return b"mask" + partners + names + first.mask_key + second.mask_key


def add_pair_mask(total: Residues, secret: bytes, site: str, other: str) -> None:
    """Mask in place. Of two sites one adds the mask and the other takes it off."""
    mask = keystream(secret, len(total))
    if site < other:
        total += mask
    else:
        total -= mask


def keystream(key: bytes, length: int) -> Residues:
    """`length` numbers of 64 bits from ChaCha20. A key is used for one stream only."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
    stream = cipher.encryptor().update(bytes(8 * length))
    numbers = np.frombuffer(stream, "<u8")
    return numbers.astype(np.uint64, copy=False)

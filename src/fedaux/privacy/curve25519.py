"""From a key that signs to the key that agrees on secrets: Ed25519 to X25519, for keys
of full order only.

A site of a secure sum proves that it knows the private half of a key by signing with
it. X25519 keys cannot sign, so session keys are Ed25519 keys, and both halves are
converted as RFC 7748 describes: u = (1 + y) / (1 − y).

X25519 accepts many encodings for what gives the same secret: it ignores a bit, reduces
coordinates, and multiplies away components of small order. A key that was copied in
another encoding would not look like a copy. So a key must be canonical and lie in the
subgroup of prime order. `cryptography` checks neither, hence the ladder below. It takes
a millisecond a key, and each key is converted several times in a sum: hence the cache,
of public keys only.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

KEY_BYTES = 32  # bytes
FIELD_PRIME = 2**255 - 19
# of the subgroup that keys lie in
ORDER = 2**252 + 27742317777372353535851937790883648493
A24 = 121665  # (486662 − 2) / 4 of Curve25519
SIGN_BIT = 1 << 255


class KeyEncodingError(ValueError):
    """Bytes that are not the one encoding of a key of full order."""


def public_key(seed: bytes) -> bytes:
    """Return the Ed25519 public key of a private one."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def agreement_secret(seed: bytes) -> X25519PrivateKey:
    """Convert an Ed25519 private key."""
    return X25519PrivateKey.from_private_bytes(
        hashlib.sha512(seed).digest()[:KEY_BYTES]
    )


@lru_cache(maxsize=4096)
def agreement_key(public: bytes) -> X25519PublicKey:
    """Convert an Ed25519 public key; raise a `KeyEncodingError` unless it is canonical
    and of full order.
    """
    y = int.from_bytes(public, "little") & ~SIGN_BIT
    if len(public) != KEY_BYTES or y >= FIELD_PRIME or y == 1:
        raise KeyEncodingError("the key is not in its canonical encoding")
    u = (1 + y) * pow(1 - y, -1, FIELD_PRIME) % FIELD_PRIME
    if not has_full_order(u):
        raise KeyEncodingError("the key has a component of small order")
    return X25519PublicKey.from_public_bytes(u.to_bytes(KEY_BYTES, "little"))


def has_full_order(u: int) -> bool:
    """Whether the point with this u-coordinate lies in the subgroup of prime order:
    whether ORDER times it is zero.
    """
    if u == 0:
        return False
    return _multiple(ORDER, u)[1] == 0


def _multiple(scalar: int, u: int) -> tuple[int, int]:
    """Return (x, z) of a multiple of the point with x/z = u; z is 0 at infinity.
    Montgomery's ladder (RFC 7748, 5).
    """
    x2, z2 = 1, 0
    x3, z3 = u, 1
    for place in reversed(range(scalar.bit_length())):
        bit = scalar >> place & 1
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
        plus = x2 + z2
        minus = x2 - z2
        plus_squared = plus * plus % FIELD_PRIME
        minus_squared = minus * minus % FIELD_PRIME
        difference = plus_squared - minus_squared
        cross = (x3 - z3) * plus % FIELD_PRIME
        other_cross = (x3 + z3) * minus % FIELD_PRIME
        x3 = (cross + other_cross) ** 2 % FIELD_PRIME
        z3 = u * (cross - other_cross) ** 2 % FIELD_PRIME
        x2 = plus_squared * minus_squared % FIELD_PRIME
        z2 = difference * (plus_squared + A24 * difference) % FIELD_PRIME
        if bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2, z2

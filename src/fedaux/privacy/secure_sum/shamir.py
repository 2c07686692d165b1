"""Shamir's secret sharing: any t of n shares give a secret, and fewer say nothing of
it.

It is our own, since a library's combine one secret at a time. That takes minutes for
300 sites, while all secrets of a sum share their Lagrange coefficients.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from fedaux.privacy.curve25519 import KEY_BYTES
from fedaux.privacy.secure_sum.settings import SecureSumError

PRIME = 2**256 + 297  # the smallest above all secrets of 32 bytes
SHARE = 33  # bytes of a share of a secret


def split(secret: bytes, threshold: int, points: Mapping[str, int]) -> dict[str, bytes]:
    """Shamir: values of a random polynomial of degree threshold − 1 whose value at 0 is
    the secret.
    """
    random = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "big"), *random]
    shares = {}
    for name, point in points.items():
        value = _polynomial(coefficients, point)
        shares[name] = value.to_bytes(SHARE, "big")
    return shares


def _polynomial(coefficients: Sequence[int], point: int) -> int:
    """The value of a polynomial at a point, by Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value


def lagrange_weights(points: Sequence[int]) -> list[int]:
    """Σ wᵢ f(pointᵢ) = f(0) modulo PRIME, for every polynomial of a degree below their
    number.
    """
    weights = []
    for point in points:
        numerator = 1
        denominator = 1
        for other in points:
            if other == point:
                continue
            numerator = numerator * other % PRIME
            denominator = denominator * (other - point) % PRIME
        inverse = pow(denominator, -1, PRIME)
        weights.append(numerator * inverse % PRIME)
    return weights


def combine(shares: Sequence[bytes], weights: Sequence[int]) -> bytes:
    """The secret of shares at the points that the weights are for."""
    total = 0
    for weight, share in zip(weights, shares, strict=True):
        total += weight * int.from_bytes(share, "big")
    value = total % PRIME
    if value >= 2 ** (8 * KEY_BYTES):
        raise SecureSumError(
            "Cannot remove the masks: shares do not add up to a secret, because a site "
            "has sent a wrong one. Start the run again."
        )
    return value.to_bytes(KEY_BYTES, "big")

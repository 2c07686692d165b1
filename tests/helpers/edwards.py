"""Ed25519's curve in affine coordinates, slowly: x² and y² with −x² + y² = 1 + d x² y²,
every step with a division.
"""

from __future__ import annotations

import hashlib
import itertools

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, PRIME) % PRIME
ROOT = pow(2, (PRIME - 1) // 4, PRIME)  # of −1
Point = tuple[int, int]
IDENTITY: Point = (0, 1)


def add(one: Point, two: Point) -> Point:
    x1, y1 = one
    x2, y2 = two
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, PRIME)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, PRIME)
    return x % PRIME, y % PRIME


def multiply(scalar: int, point: Point) -> Point:
    """Double and add."""
    total = IDENTITY
    for bit in bin(scalar)[2:]:
        total = add(total, total)
        if bit == "1":
            total = add(total, point)
    return total


def point_at(y: int) -> Point | None:
    """Return the point with this y and an even x, if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    for root in (x, x * ROOT % PRIME):
        if root * root % PRIME == square:
            return min(root, PRIME - root, key=lambda one: one & 1), y
    return None


def points_from(y: int) -> Point:
    """Return the first point whose y is at least this."""
    return next(point for one in itertools.count(y) if (point := point_at(one)))


def find_base() -> Point:
    base = point_at(4 * pow(5, -1, PRIME) % PRIME)
    assert base is not None
    return base


def find_small() -> list[Point]:
    """Return the eight points of small order: multiples of one of order 8."""
    candidates = (multiply(ORDER, points_from(y)) for y in itertools.count(2))
    generator = next(point for point in candidates if multiply(4, point) != IDENTITY)
    return [multiply(number, generator) for number in range(8)]


BASE = find_base()
SMALL = find_small()


def encode(point: Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decode(text: bytes) -> Point:
    number = int.from_bytes(text, "little")
    point = point_at(number & (2**255 - 1))
    assert point is not None
    x, y = point
    return (x if x & 1 == number >> 255 else PRIME - x), y


def montgomery(point: Point) -> int | None:
    """Return the u-coordinate of a point; None at infinity."""
    _, y = point
    return None if y == 1 else (1 + y) * pow(1 - y, -1, PRIME) % PRIME


def secret_scalar(seed: bytes) -> int:
    """Return the number behind a private key (RFC 8032, 5.1.5)."""
    digest = bytearray(hashlib.sha512(seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 63 | 64
    return int.from_bytes(digest, "little")


def sign(scalar: int, public: bytes, message: bytes, nonce: int = 1) -> bytes:
    """Sign as whoever knows the scalar would, for any public key that they say is
    theirs.
    """
    commitment = encode(multiply(nonce, BASE))
    challenge = (
        int.from_bytes(hashlib.sha512(commitment + public + message).digest(), "little")
        % ORDER
    )
    return commitment + ((nonce + challenge * scalar) % ORDER).to_bytes(32, "little")

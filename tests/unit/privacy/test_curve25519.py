"""Keys that agree on secrets: one encoding each, of full order only; against affine
points, added one by one.
"""

from __future__ import annotations

import itertools
import secrets

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedaux.privacy.curve25519 import (
    FIELD_PRIME,
    ORDER,
    KeyEncodingError,
    _multiple,
    agreement_key,
    agreement_secret,
    has_full_order,
    public_key,
)
from helpers.edwards import (
    BASE,
    IDENTITY,
    SMALL,
    Point,
    add,
    decode,
    encode,
    montgomery,
    multiply,
    point_at,
    points_from,
    secret_scalar,
    sign,
)

SEEDS = st.binary(min_size=32, max_size=32)
NUMBERS = st.integers(2, FIELD_PRIME - 2)


def ladder(scalar: int, u: int) -> int | None:
    x, z = _multiple(scalar, u)
    return None if z == 0 else x * pow(z, -1, FIELD_PRIME) % FIELD_PRIME


def test_the_oracle_has_the_order_and_the_small_points_of_the_curve() -> None:
    assert multiply(ORDER, BASE) == IDENTITY
    orders = [
        next(n for n in (1, 2, 4, 8) if multiply(n, point) == IDENTITY)
        for point in SMALL
    ]
    assert sorted(orders) == [1, 2, 4, 4, 8, 8, 8, 8]
    assert montgomery(BASE) == 9
    seed = bytes(range(32))
    assert encode(multiply(secret_scalar(seed), BASE)) == public_key(seed)


@settings(max_examples=20)
@given(SEEDS, SEEDS)
def test_two_keys_agree_on_one_secret_and_it_is_that_of_the_curve(
    one: bytes, two: bytes
) -> None:
    ours = agreement_secret(one).exchange(agreement_key(public_key(two)))
    theirs = agreement_secret(two).exchange(agreement_key(public_key(one)))
    assert ours == theirs
    shared = montgomery(multiply(secret_scalar(one), decode(public_key(two))))
    assert shared is not None
    assert ours == shared.to_bytes(32, "little")


@settings(max_examples=20)
@given(SEEDS)
def test_both_halves_of_a_key_are_converted_alike(seed: bytes) -> None:
    converted = agreement_key(public_key(seed)).public_bytes_raw()
    assert converted == agreement_secret(seed).public_key().public_bytes_raw()


@settings(max_examples=8)
@given(NUMBERS, st.integers(0, 2**256))
def test_the_ladder_multiplies_as_adding_points_does(y: int, scalar: int) -> None:
    point = points_from(y)
    u = montgomery(point)
    # at 0 there is the point of order two, which is refused before any ladder
    assume(u)
    assert u is not None
    for number in (0, 1, 2, 3, 8, ORDER, 8 * ORDER, scalar):
        assert ladder(number, u) == montgomery(multiply(number, point))


@settings(max_examples=5)
@given(NUMBERS)
def test_a_point_has_full_order_if_adding_it_to_itself_says_so(y: int) -> None:
    """Any point, what is left of it without its small part, and that with each small
    part added.
    """
    point = points_from(y)
    pure = multiply(8, point)
    for small in [None, *SMALL]:
        candidate = point if small is None else add(pure, small)
        u = montgomery(candidate)
        expected = multiply(ORDER, candidate) == IDENTITY and candidate != IDENTITY
        assert (u is not None and has_full_order(u)) == expected
        if expected:
            agreement_key(encode(candidate))
        else:
            with pytest.raises(KeyEncodingError):
                agreement_key(encode(candidate))


def own_point(seed: bytes) -> Point:
    return decode(public_key(seed))


@pytest.mark.parametrize("number", range(8))
def test_points_of_small_order_are_refused_in_every_encoding(number: int) -> None:
    x, y = SMALL[number]
    encodings = {encode((x, y))}
    # the second is not canonical, and only few fit into 255 bits
    for value in (y, y + FIELD_PRIME):
        for bit in (0, 1):
            if value < 2**255:
                encodings.add((value | bit << 255).to_bytes(32, "little"))
    assert len(encodings) >= 2
    for text in encodings:
        with pytest.raises(KeyEncodingError):
            agreement_key(text)


@pytest.mark.parametrize("number", range(1, 8))
def test_a_copy_of_a_key_with_a_small_part_is_refused(number: int) -> None:
    """It gives the same secrets under X25519, so two sites would have the same
    masks.
    """
    seed = secrets.token_bytes(32)
    copy = add(own_point(seed), SMALL[number])
    with pytest.raises(KeyEncodingError, match="a component of small order"):
        agreement_key(encode(copy))


def test_a_copy_with_a_small_part_would_give_the_same_secrets() -> None:
    """What the check is there for: the attack succeeds on X25519 itself."""
    seed = secrets.token_bytes(32)
    private = X25519PrivateKey.generate()
    found = set()
    for small in SMALL:
        u = montgomery(add(own_point(seed), small))
        assert u is not None
        copy = X25519PublicKey.from_public_bytes(u.to_bytes(32, "little"))
        found.add(private.exchange(copy))
    assert len(found) == 1


def test_every_coordinate_that_is_not_reduced_is_refused() -> None:
    """There are 19 of them in 255 bits; with either sign."""
    for value, bit in itertools.product(range(FIELD_PRIME, 2**255), (0, 1)):
        with pytest.raises(KeyEncodingError, match="canonical"):
            agreement_key((value | bit << 255).to_bytes(32, "little"))


@pytest.mark.parametrize(
    "text",
    [b"", bytes(31), bytes(33), public_key(bytes(32))[:31], public_key(bytes(32)) * 2],
)
def test_a_key_has_32_bytes(text: bytes) -> None:
    with pytest.raises(KeyEncodingError):
        agreement_key(text)


def test_points_of_the_twist_are_refused() -> None:
    """A y without a point on the curve: X25519 would compute on the twist, and say
    nothing.
    """
    off = next(y for y in itertools.count(3) if point_at(y) is None)
    with pytest.raises(KeyEncodingError):
        agreement_key(off.to_bytes(32, "little"))


def test_a_key_of_small_order_needs_no_private_half_to_sign() -> None:
    """So possession is not enough: anybody signs for the identity, and for a copy of a
    key with a small part.
    """
    message = b"keys of a sum"
    forged = sign(0, encode(IDENTITY), message)
    Ed25519PublicKey.from_public_bytes(encode(IDENTITY)).verify(forged, message)
    with pytest.raises(KeyEncodingError):
        agreement_key(encode(IDENTITY))

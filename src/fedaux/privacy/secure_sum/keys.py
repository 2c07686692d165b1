"""Session keys of a secure sum: each site makes two for one sum, proves that it knows
their private halves, and signs both with its key in the roster.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedaux.privacy.curve25519 import KEY_BYTES, KeyEncodingError, agreement_key
from fedaux.privacy.secure_sum.settings import SecureSumError, SumSettings

SIGNATURE = 64  # bytes


@dataclass(frozen=True)
class Keys:
    """Step 0, from a site: its session keys for this sum, with proofs that it knows
    their private halves.
    """

    sender: str
    mask_key: bytes
    share_key: bytes
    mask_proof: bytes
    share_proof: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        return (
            self.mask_key
            + self.share_key
            + self.mask_proof
            + self.share_proof
            + self.signature
        )

    @classmethod
    def from_bytes(cls, sender: str, encoded: bytes) -> Keys:
        """Read what `to_bytes` wrote."""
        lengths = [KEY_BYTES, KEY_BYTES, SIGNATURE, SIGNATURE, SIGNATURE]
        if len(encoded) != sum(lengths):
            raise SecureSumError(
                f"Cannot add the vectors: the keys of {sender} are not of this "
                "protocol. Install the same version of fedaux at the server and the "
                "sites."
            )
        fields = []
        start = 0
        for length in lengths:
            fields.append(encoded[start : start + length])
            start += length
        return cls(sender, *fields)

    def signed(self, settings: SumSettings) -> bytes:
        """Return what all three signatures sign: the sum, the site and both of its
        keys.
        """
        return (
            b"keys"
            + settings.context
            + length_prefixed(self.sender)
            + self.mask_key
            + self.share_key
        )

    def check(self, settings: SumSettings) -> None:
        """Raise a `SecureSumError` unless the site has signed these keys, knows them,
        and may use them.
        """
        message = self.signed(settings)
        settings.verify(self.sender, self.signature, message)
        check_possession(self.sender, self.mask_key, self.mask_proof, message)
        check_encoding(self.sender, self.mask_key)
        check_possession(self.sender, self.share_key, self.share_proof, message)
        check_encoding(self.sender, self.share_key)


def check_possession(sender: str, key: bytes, proof: bytes, message: bytes) -> None:
    """Raise a `SecureSumError` unless the proof is a signature by the private half of
    the key.
    """
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(proof, message)
    except (InvalidSignature, ValueError) as error:
        raise SecureSumError(
            f"Cannot add the vectors: {sender} does not prove that it knows the key "
            "that it sends. Ask that site to check its key and start the run again."
        ) from error


def check_encoding(sender: str, key: bytes) -> None:
    """Raise a `SecureSumError` unless the key is canonical and of full order."""
    try:
        agreement_key(key)
    except KeyEncodingError as error:
        raise SecureSumError(
            f"Cannot add the vectors: a key of {sender} cannot be used ({error}). Ask "
            "that site to check its key and start the run again."
        ) from error


def derive(shared: bytes, info: bytes) -> bytes:
    """Derive a key for one purpose, which `info` names, from a shared secret."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(shared)


def length_prefixed(name: str) -> bytes:
    """Return a name whose end can be told from what follows it."""
    encoded = name.encode()
    return len(encoded).to_bytes(4, "big") + encoded

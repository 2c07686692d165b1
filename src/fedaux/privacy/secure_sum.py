"""Secure sums: the server learns the sum of the sites' vectors, and of no site alone.

Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine
learning", with the consistency check against a server that lies, over a complete graph
of sites. Five messages a sum:

0. keys: each site makes two fresh session keys, proves that it knows their private halves, and signs both with the key
   that the roster has for it. What it signs names the order whose answers are summed,
   so that sites which were asked different things are in different sums.
1. shares: the key of its masks and the seed of its own mask, t-of-n by Shamir, encrypted for each other site.
2. masked vector: x + PRG(own seed) ± PRG(secret of each pair) modulo 2⁶⁴. The pairs' masks cancel in the sum. The
   secret of a pair is derived from both names and both keys, so that a copied key gives
   other masks. All masks also depend on the list of partners, so that a site whose
   vault was restored masks no two lists alike.
3. consistency: each site signs the set of survivors that the server named, and no other set.
4. unmasking: against t signatures of one set, shares of the seeds of survivors and of the keys of the lost; never both.

Bonawitz et al. prove that fewer than t sites together with the server learn the sum
over the survivors and nothing else, if t > 2n/3: two sets of t signers share an honest
site, so a server cannot have two sets of survivors signed. This is a variant of their
protocol. A symbolic model of it (tests/models) finds the two attacks on an earlier
version, and none on this one within its bounds.

Primitives are those of `cryptography`. Shamir is our own twenty lines: a library's
combine one secret at a time, which takes minutes for 300 sites, while all secrets of a
sum share their Lagrange coefficients.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedaux.core.failures import OrderError
from fedaux.messages import SumTerms
from fedaux.privacy.curve25519 import (
    KEY_BYTES,
    KeyEncodingError,
    agreement_key,
    agreement_secret,
    public_key,
)
from fedaux.privacy.roster import simulated_key

PRIME = 2**256 + 297  # the smallest above all secrets of 32 bytes
SHARE = 33  # bytes of a share of a secret
SIGNATURE = 64  # bytes
NONCE = bytes(12)  # each key of a box encrypts one message
LEAST_SITES, MOST_SITES = 3, 300  # of a sum: each pair of sites has a mask of its own
ALL_BELOW = 6  # sites of which all are needed
Residues = NDArray[np.uint64]
Names = tuple[str, ...]


class SecureSumError(OrderError):
    """A message that the protocol does not allow, or a sum with too few sites. No
    secret has left.
    """


def least_threshold(sites: int) -> int:
    """The smallest t for n sites: more than two thirds; all of fewer than six."""
    return sites if sites < ALL_BELOW else 2 * sites // 3 + 1


def agreed_threshold(sites: int, share: float) -> int:
    """t for n sites of which at least this share is needed."""
    return max(least_threshold(sites), math.ceil(share * sites - 1e-9))


def honest_sites(threshold: int, sites: int, colluders: int) -> int:
    """How many survivors are honest at least, if this number of sites works together
    with the server.

    Two sets of t signers share 2t − n sites, of which one must be honest. And two
    honest sites must remain, for one alone would be seen by the others.
    """
    if 2 * threshold - sites <= colluders or threshold - colluders < 2:
        raise SecureSumError(
            f"with {colluders} of {sites} sites on the server's side, a sum that needs "
            f"{threshold} protects nobody: raise federation.threshold, lower "
            "federation.colluders, or ask more sites"
        )
    return threshold - colluders


def sum_settings(terms: SumTerms, roster: Mapping[str, bytes] | None) -> SumSettings:
    """Return what all sites agree on: the terms, and the keys of the sites from this
    party's own roster.

    Simulated sites have no roster, None: their keys follow from their names.
    """
    simulated = {
        name: simulated_key(name).public_key().public_bytes_raw()
        for name in terms.sites
    }
    known = simulated if roster is None else roster
    missing = [name for name in terms.sites if name not in known]
    if missing:
        raise SecureSumError(f"{', '.join(missing)} is not in this site's roster")
    keys = {name: known[name] for name in terms.sites}
    purpose = json.dumps([terms.order, terms.attempt, terms.colluders, terms.scale])
    return SumSettings(terms.run, purpose, keys, terms.threshold, terms.length)


@dataclass(frozen=True)
class SumSettings:
    """What all sites of a sum must agree on; it is part of everything that they sign
    and derive.

    Attributes:
        run: The run that the sum belongs to.
        purpose: What is summed: the identity of the order, and which attempt this is.
        roster: The Ed25519 public key of each site, by name, as each site has it on its
            own disk.
        threshold: t, how many sites a sum needs.
        length: Of the vectors.
    """

    run: str
    purpose: str
    roster: Mapping[str, bytes]
    threshold: int
    length: int

    def __post_init__(self) -> None:
        n = len(self.roster)
        if not LEAST_SITES <= n <= MOST_SITES:
            raise SecureSumError(
                f"a secure sum needs {LEAST_SITES} to {MOST_SITES} sites, and there "
                f"are {n}"
            )
        if not least_threshold(n) <= self.threshold <= n:
            raise SecureSumError(
                f"of {n} sites a sum needs between {least_threshold(n)} and {n}, not "
                f"{self.threshold}"
            )
        if self.length < 1:
            raise SecureSumError("a secure sum needs vectors of at least one number")

    @cached_property
    def context(self) -> bytes:
        """Identifies the sum to the bit."""
        roster = [(name, self.roster[name].hex()) for name in sorted(self.roster)]
        facts = [
            "fedaux secure sum 2",
            self.run,
            self.purpose,
            roster,
            self.threshold,
            self.length,
        ]
        return hashlib.sha256(json.dumps(facts).encode()).digest()

    def has_room_for(self, vector: NDArray[np.int64]) -> bool:
        """Whether the numbers are so small that the sum over all sites cannot
        overflow.
        """
        limit = 2**63 // len(self.roster)
        return bool(((-limit < vector) & (vector < limit)).all())

    def position(self, name: str) -> int:
        """From 1 on: the point at which a site's shares are evaluated."""
        return sorted(self.roster).index(name) + 1

    def verify(self, name: str, signature: bytes, message: bytes) -> None:
        if name not in self.roster:
            raise SecureSumError(f"{name!r} is not in this site's roster")
        try:
            Ed25519PublicKey.from_public_bytes(self.roster[name]).verify(
                signature, message
            )
        except InvalidSignature as error:
            raise SecureSumError(
                f"a message of {name} does not bear its signature"
            ) from error


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
    def from_bytes(cls, sender: str, text: bytes) -> Keys:
        """Read what `to_bytes` wrote."""
        lengths = [KEY_BYTES, KEY_BYTES, SIGNATURE, SIGNATURE, SIGNATURE]
        if len(text) != sum(lengths):
            raise SecureSumError(f"the keys of {sender} are not of this protocol")
        parts = []
        start = 0
        for length in lengths:
            parts.append(text[start : start + length])
            start += length
        return cls(sender, *parts)

    def signed(self, settings: SumSettings) -> bytes:
        """Return what all three signatures sign: the sum, the site and both of its
        keys.
        """
        return (
            b"keys"
            + settings.context
            + _text(self.sender)
            + self.mask_key
            + self.share_key
        )

    def check(self, settings: SumSettings) -> None:
        """Raise a `SecureSumError` unless the site has signed these keys, knows them,
        and may use them.
        """
        message = self.signed(settings)
        settings.verify(self.sender, self.signature, message)
        for key, proof in (
            (self.mask_key, self.mask_proof),
            (self.share_key, self.share_proof),
        ):
            check_possession(self.sender, key, proof, message)
            check_encoding(self.sender, key)


def check_possession(sender: str, key: bytes, proof: bytes, message: bytes) -> None:
    """Raise a `SecureSumError` unless the proof is a signature by the private half of
    the key.
    """
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(proof, message)
    except (InvalidSignature, ValueError) as error:
        raise SecureSumError(
            f"{sender} does not prove that it knows the key that it sends"
        ) from error


def check_encoding(sender: str, key: bytes) -> None:
    """Raise a `SecureSumError` unless the key is canonical and of full order."""
    try:
        agreement_key(key)
    except KeyEncodingError as error:
        raise SecureSumError(f"a key of {sender} cannot be used: {error}") from error


@dataclass(frozen=True)
class Unmasking:
    """Step 4, from a site: its shares of the secrets of others. No site is in both."""

    sender: str
    seeds: Mapping[str, bytes]  # of survivors
    mask_keys: Mapping[str, bytes]  # of the lost

    def to_bytes(self) -> dict[str, bytes]:
        """Return the shares by kind and site."""
        kinds = {"seed": self.seeds, "key": self.mask_keys}
        return {
            f"{kind} {name}": share
            for kind, shares in kinds.items()
            for name, share in shares.items()
        }

    @classmethod
    def from_bytes(cls, sender: str, shares: Mapping[str, bytes]) -> Unmasking:
        """Read what `to_bytes` wrote."""
        seeds = {
            name.removeprefix("seed "): share
            for name, share in shares.items()
            if name.startswith("seed ")
        }
        keys = {
            name.removeprefix("key "): share
            for name, share in shares.items()
            if name.startswith("key ")
        }
        return cls(sender, seeds, keys)


@dataclass(frozen=True)
class SiteState:
    """All that a site must remember between the messages of a sum; secret, and deleted
    at its end.
    """

    settings: SumSettings
    name: str
    mask_key: bytes = field(repr=False)
    share_key: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    # of all sites that began, after step 1
    keys: Mapping[str, Keys] = field(default_factory=dict)
    # received, after step 2
    shares: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    survivors: Names = ()  # that this site has signed, after step 3
    finished: bool = False

    def begin(self, signing_key: Ed25519PrivateKey) -> Keys:
        """Step 0."""
        unsigned = Keys(
            self.name,
            public_key(self.mask_key),
            public_key(self.share_key),
            b"",
            b"",
            b"",
        )
        message = unsigned.signed(self.settings)
        return replace(
            unsigned,
            mask_proof=Ed25519PrivateKey.from_private_bytes(self.mask_key).sign(
                message
            ),
            share_proof=Ed25519PrivateKey.from_private_bytes(self.share_key).sign(
                message
            ),
            signature=signing_key.sign(message),
        )

    def share(self, keys: Iterable[Keys]) -> tuple[SiteState, dict[str, bytes]]:
        """Step 1: (the next state, for each other site its encrypted shares of this
        site's secrets).
        """
        self._require(not self.keys, "shares were asked for twice")
        settings, found = self.settings, {one.sender: one for one in keys}
        self._enough(found)
        for one in found.values():
            one.check(settings)
        public = [
            key for one in found.values() for key in (one.mask_key, one.share_key)
        ]
        self._require(len(set(public)) == len(public), "two sites have the same key")
        own = [public_key(self.mask_key), public_key(self.share_key)]
        mine = found.get(self.name)
        self._require(
            mine is not None and [mine.mask_key, mine.share_key] == own,
            "this site's own keys are missing",
        )
        points = {name: settings.position(name) for name in found}
        of_key, of_seed = (
            split(secret, settings.threshold, points)
            for secret in (self.mask_key, self.seed)
        )
        state = replace(
            self, keys=found, shares={self.name: of_key[self.name] + of_seed[self.name]}
        )
        sealed = {
            name: state._seal(name, of_key[name] + of_seed[name])
            for name in found
            if name != self.name
        }
        return state, sealed

    def accept(self, sealed: Mapping[str, bytes]) -> SiteState:
        """Step 2, first half: the state with the shares that others have sent to this
        site; their senders mask too.
        """
        self._require(
            bool(self.keys) and len(self.shares) == 1,
            "a masked vector was asked for out of turn",
        )
        self._require(
            set(sealed) <= set(self.keys) - {self.name},
            "shares came from sites that have sent no keys",
        )
        self._enough({*sealed, self.name})
        opened = {name: self._open(name, box) for name, box in sealed.items()}
        return replace(self, shares={**self.shares, **opened})

    def mask(self, vector: NDArray[np.int64]) -> Residues:
        """Step 2, second half: this site's vector under its masks, after `accept`."""
        self._require(len(self.shares) > 1, "a masked vector was asked for out of turn")
        self._require(
            vector.shape == (self.settings.length,),
            f"the sum is of {self.settings.length} numbers",
        )
        self._require(
            self.settings.has_room_for(vector),
            "a number is so large that the sum could overflow",
        )
        partners = partners_info(self.settings, self.keys, self.shares)
        total = vector.astype(np.uint64) + keystream(
            derive(self.seed, b"own" + partners), self.settings.length
        )
        for other in sorted(self.shares):
            if other != self.name:
                secret = pair_secret(
                    self.mask_key, self.keys[self.name], self.keys[other], partners
                )
                add_pair_mask(total, secret, self.name, other)
        return total

    def agree(
        self, survivors: Iterable[str], signing_key: Ed25519PrivateKey
    ) -> tuple[SiteState, bytes]:
        """Step 3: (the next state, this site's signature of the set of survivors). It
        signs one set only.
        """
        names = tuple(sorted(set(survivors)))
        self._require(
            len(self.shares) > 1 and self.survivors in ((), names),
            "a second set of survivors was named",
        )
        self._enough(names)
        self._require(
            set(names) <= set(self.shares), "a survivor is named that had left before"
        )
        self._require(
            self.name in names, "this site was left out of a sum that it has answered"
        )
        return replace(self, survivors=names), signing_key.sign(
            survivors_signed(self.settings, self.keys, names)
        )

    def unmask(self, signatures: Mapping[str, bytes]) -> tuple[SiteState, Unmasking]:
        """Step 4: (the last state, shares that remove the masks from the sum over the
        survivors).
        """
        self._require(
            bool(self.survivors) and not self.finished,
            "unmasking was asked for out of turn",
        )
        self._require(
            set(signatures) <= set(self.survivors), "a site that is lost has signed"
        )
        self._enough(signatures)
        for name, signature in signatures.items():
            self.settings.verify(
                name,
                signature,
                survivors_signed(self.settings, self.keys, self.survivors),
            )
        seeds = {name: self.shares[name][SHARE:] for name in self.survivors}
        lost = {
            name: share[:SHARE]
            for name, share in self.shares.items()
            if name not in self.survivors
        }
        gone = replace(
            self, mask_key=b"", share_key=b"", seed=b"", shares={}, finished=True
        )
        return gone, Unmasking(self.name, seeds, lost)

    def _require(self, condition: bool, reason: str) -> None:
        if self.finished or not condition:
            raise SecureSumError(
                f"{self.name} refuses: "
                f"{'this sum is finished' if self.finished else reason}"
            )

    def _enough(self, names: Iterable[str]) -> None:
        count = len(set(names))
        self._require(
            count >= self.settings.threshold,
            f"{count} sites are left, {self.settings.threshold} are needed",
        )

    def _seal(self, to: str, message: bytes) -> bytes:
        address = share_info(self.settings, self.keys[self.name], self.keys[to])
        return self._box(to, address).encrypt(NONCE, message, address)

    def _open(self, sender: str, box: bytes) -> bytes:
        address = share_info(self.settings, self.keys[sender], self.keys[self.name])
        try:
            message = self._box(sender, address).decrypt(NONCE, box, address)
        except InvalidTag as error:
            raise SecureSumError(
                f"{self.name} refuses: shares of {sender} were altered on their way"
            ) from error
        self._require(
            len(message) == 2 * SHARE, f"shares of {sender} are not of this protocol"
        )
        return message

    def _box(self, other: str, address: bytes) -> ChaCha20Poly1305:
        """Return the box for the one message between two sites in one direction, which
        `address` names.
        """
        shared = agreement_secret(self.share_key).exchange(
            agreement_key(self.keys[other].share_key)
        )
        return ChaCha20Poly1305(derive(shared, address))


def new_site(settings: SumSettings, name: str) -> SiteState:
    """A site that takes part in a sum: fresh keys and a fresh seed, from the operating
    system.
    """
    if name not in settings.roster:
        raise SecureSumError(f"{name!r} is not in the roster")
    return SiteState(
        settings,
        name,
        secrets.token_bytes(KEY_BYTES),
        secrets.token_bytes(KEY_BYTES),
        secrets.token_bytes(KEY_BYTES),
    )


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
    if len({one.sender for one in replies}) < settings.threshold:
        raise SecureSumError(
            f"{len(replies)} sites answered the last step, {settings.threshold} are "
            "needed"
        )
    used = sorted(replies, key=lambda one: settings.position(one.sender))[
        : settings.threshold
    ]
    weights = lagrange_weights([settings.position(one.sender) for one in used])
    partners = partners_info(settings, keys, sharing)
    total = np.zeros(settings.length, np.uint64)
    for vector in masked.values():
        total += vector
    for name in masked:
        seed = combine([one.seeds[name] for one in used], weights)
        total -= keystream(derive(seed, b"own" + partners), settings.length)
    for name in sorted(set(sharing) - set(masked)):
        secret = combine([one.mask_keys[name] for one in used], weights)
        if public_key(secret) != keys[name].mask_key:
            raise SecureSumError(
                f"the shares of {name} do not add up to its key: a site has sent a "
                "wrong one"
            )
        for other in masked:  # the masks that survivors share with who is lost
            add_pair_mask(
                total,
                pair_secret(secret, keys[name], keys[other], partners),
                name,
                other,
            )
    return total.view(np.int64)


def survivors_signed(
    settings: SumSettings, keys: Mapping[str, Keys], names: Names
) -> bytes:
    """What step 3 signs: a set of survivors and their keys, which are fresh when the
    same terms come again.
    """
    fresh = b"".join(
        keys[name].mask_key + keys[name].share_key for name in sorted(names)
    )
    return b"survivors" + settings.context + json.dumps(sorted(names)).encode() + fresh


def partners_info(
    settings: SumSettings, keys: Mapping[str, Keys], sharing: Iterable[str]
) -> bytes:
    """Return what binds masks to the sum, and to the names and keys of all sites that
    mask with each other.
    """
    info = hashlib.sha256(settings.context)
    for name in sorted(sharing):
        info.update(_text(name) + keys[name].mask_key + keys[name].share_key)
    return info.digest()


def pair_secret(private: bytes, own: Keys, other: Keys, partners: bytes) -> bytes:
    """Return the secret of a pair's masks, the same for both sites: `private` is that
    of `own`.
    """
    shared = agreement_secret(private).exchange(agreement_key(other.mask_key))
    return derive(shared, mask_info(own, other, partners))


def mask_info(own: Keys, other: Keys, partners: bytes) -> bytes:
    """Return what binds a pair's masks to the names and keys of the pair, and to the
    sum with all of its sites.
    """
    first, second = sorted((own, other), key=lambda keys: keys.sender)
    names = _text(first.sender) + _text(second.sender)
    return b"mask" + partners + names + first.mask_key + second.mask_key


def share_info(settings: SumSettings, sender: Keys, to: Keys) -> bytes:
    """Return what binds an encrypted share to the sum, and to the names and keys of its
    sender and its receiver.
    """
    names = _text(sender.sender) + _text(to.sender)
    return b"share" + settings.context + names + sender.share_key + to.share_key


def add_pair_mask(total: Residues, secret: bytes, site: str, other: str) -> None:
    """Of two sites one adds the mask and the other takes it off."""
    mask = keystream(secret, len(total))
    if site < other:
        total += mask
    else:
        total -= mask


def keystream(key: bytes, length: int) -> Residues:
    """`length` numbers of 64 bits from ChaCha20; a key is used for one stream only."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * length)), "<u8").astype(
        np.uint64, copy=False
    )


def derive(shared: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(shared)


def split(secret: bytes, threshold: int, points: Mapping[str, int]) -> dict[str, bytes]:
    """Shamir: values of a random polynomial of degree threshold − 1 whose value at 0 is
    the secret.
    """
    coefficients = [
        int.from_bytes(secret, "big"),
        *(secrets.randbelow(PRIME) for _ in range(threshold - 1)),
    ]

    def value(point: int) -> int:
        total = 0
        for coefficient in reversed(coefficients):
            total = (total * point + coefficient) % PRIME
        return total

    return {name: value(point).to_bytes(SHARE, "big") for name, point in points.items()}


def lagrange_weights(points: Sequence[int]) -> list[int]:
    """Σ wᵢ f(pointᵢ) = f(0) modulo PRIME, for every polynomial of a degree below their
    number.
    """
    weights = []
    for point in points:
        top = bottom = 1
        for other in points:
            if other != point:
                top, bottom = top * other % PRIME, bottom * (other - point) % PRIME
        weights.append(top * pow(bottom, -1, PRIME) % PRIME)
    return weights


def combine(shares: Sequence[bytes], weights: Sequence[int]) -> bytes:
    """The secret of shares at the points that the weights are for."""
    value = (
        sum(
            weight * int.from_bytes(share, "big")
            for weight, share in zip(weights, shares, strict=True)
        )
        % PRIME
    )
    if value >= 2 ** (8 * KEY_BYTES):
        raise SecureSumError(
            "shares do not add up to a secret: a site has sent a wrong one"
        )
    return value.to_bytes(KEY_BYTES, "big")


def _text(name: str) -> bytes:
    encoded = name.encode()
    return len(encoded).to_bytes(4, "big") + encoded

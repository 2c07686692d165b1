"""A site's part in a secure sum, as a pure state machine: each of the five messages
takes its state to the next.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from fedaux.privacy.curve25519 import (
    KEY_BYTES,
    agreement_key,
    agreement_secret,
    public_key,
)
from fedaux.privacy.secure_sum.keys import Keys, derive, length_prefixed
from fedaux.privacy.secure_sum.masks import (
    Residues,
    add_pair_mask,
    own_mask,
    pair_secret,
    partners_info,
)
from fedaux.privacy.secure_sum.settings import SecureSumError, SumSettings
from fedaux.privacy.secure_sum.shamir import SHARE, split
from fedaux.privacy.secure_sum.unmasking import Unmasking

NONCE = bytes(12)  # each key of a box encrypts one message
Names = tuple[str, ...]


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
        mask_key = Ed25519PrivateKey.from_private_bytes(self.mask_key)
        share_key = Ed25519PrivateKey.from_private_bytes(self.share_key)
        unsigned = Keys(
            self.name,
            public_key(self.mask_key),
            public_key(self.share_key),
            mask_proof=b"",
            share_proof=b"",
            signature=b"",
        )
        message = unsigned.signed(self.settings)
        return replace(
            unsigned,
            mask_proof=mask_key.sign(message),
            share_proof=share_key.sign(message),
            signature=signing_key.sign(message),
        )

    def share(self, keys: Iterable[Keys]) -> tuple[SiteState, dict[str, bytes]]:
        """Step 1: (the next state, for each other site its encrypted shares of this
        site's secrets).
        """
        self._require(not self.keys, "shares were asked for twice")
        keys_by_site = {session.sender: session for session in keys}
        self._check_keys(keys_by_site)
        shares = self._split_secrets(keys_by_site)
        kept = shares.pop(self.name)
        state = replace(self, keys=keys_by_site, shares={self.name: kept})
        sealed = {name: state._seal(name, share) for name, share in shares.items()}
        return state, sealed

    def _check_keys(self, keys: Mapping[str, Keys]) -> None:
        """Refuse keys that are too few, that a site may not use, that two sites share,
        or that leave out this site's own.
        """
        self._enough(keys)
        public = []
        for session in keys.values():
            session.check(self.settings)
            public += [session.mask_key, session.share_key]
        self._require(len(set(public)) == len(public), "two sites have the same key")
        received = keys.get(self.name)
        self._require(
            received is not None
            and received.mask_key == public_key(self.mask_key)
            and received.share_key == public_key(self.share_key),
            "the keys of this site are missing",
        )

    def _split_secrets(self, sites: Iterable[str]) -> dict[str, bytes]:
        """Return each site's shares of this site's mask key and seed, one after the
        other.
        """
        settings = self.settings
        points = {name: settings.position(name) for name in sites}
        key_shares = split(self.mask_key, settings.threshold, points)
        seed_shares = split(self.seed, settings.threshold, points)
        return {name: key_shares[name] + seed_shares[name] for name in points}

    def accept(self, sealed: Mapping[str, bytes]) -> SiteState:
        """Step 2, first half: the state with the shares that others have sent to this
        site. Their senders mask too.
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
        total = vector.astype(np.uint64)
        total += own_mask(self.seed, partners, self.settings.length)
        session = self.keys[self.name]
        for other in sorted(set(self.shares) - {self.name}):
            secret = pair_secret(self.mask_key, session, self.keys[other], partners)
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
        message = survivors_signed(self.settings, self.keys, names)
        return replace(self, survivors=names), signing_key.sign(message)

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
        message = survivors_signed(self.settings, self.keys, self.survivors)
        for name, signature in signatures.items():
            self.settings.verify(name, signature, message)
        # of each site one secret or the other, never both
        lost = [name for name in self.shares if name not in self.survivors]
        seeds = {name: self.shares[name][SHARE:] for name in self.survivors}
        mask_keys = {name: self.shares[name][:SHARE] for name in lost}
        erased = replace(
            self, mask_key=b"", share_key=b"", seed=b"", shares={}, finished=True
        )
        return erased, Unmasking(self.name, seeds, mask_keys)

    def _require(self, condition: bool, reason: str) -> None:
        if self.finished:
            reason = "this sum is finished"
        elif condition:
            return
        raise SecureSumError(
            f"Cannot take part in the secure sum: {self.name} refuses, because "
            f"{reason}. Start the run again."
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
                f"Cannot take part in the secure sum: {self.name} refuses, because "
                f"shares of {sender} were altered on their way. Start the run again."
            ) from error
        self._require(
            len(message) == 2 * SHARE, f"shares of {sender} are not of this protocol"
        )
        return message

    def _box(self, other: str, address: bytes) -> ChaCha20Poly1305:
        """Return the box for the one message between two sites in one direction, which
        `address` names.
        """
        public = agreement_key(self.keys[other].share_key)
        shared = agreement_secret(self.share_key).exchange(public)
        return ChaCha20Poly1305(derive(shared, address))


def new_site(settings: SumSettings, name: str) -> SiteState:
    """A site that takes part in a sum: fresh keys and a fresh seed, from the operating
    system.
    """
    if name not in settings.roster:
        raise SecureSumError(
            f"Cannot take part in a secure sum: {name!r} is not in the roster. Install "
            "the server's newest roster at this site."
        )
    return SiteState(
        settings,
        name,
        mask_key=secrets.token_bytes(KEY_BYTES),
        share_key=secrets.token_bytes(KEY_BYTES),
        seed=secrets.token_bytes(KEY_BYTES),
    )


def survivors_signed(
    settings: SumSettings, keys: Mapping[str, Keys], names: Names
) -> bytes:
    """What step 3 signs: a set of survivors and their keys, which are fresh when the
    same terms come again.
    """
    ordered = sorted(names)
    message = b"survivors" + settings.context + json.dumps(ordered).encode()
    for name in ordered:
        message += keys[name].mask_key + keys[name].share_key
    return message


def share_info(settings: SumSettings, sender: Keys, to: Keys) -> bytes:
    """Return what binds an encrypted share to the sum, and to the names and keys of its
    sender and its receiver.
    """
    names = length_prefixed(sender.sender) + length_prefixed(to.sender)
    return b"share" + settings.context + names + sender.share_key + to.share_key

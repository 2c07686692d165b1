"""What all sites of a secure sum agree on: who they are, what is summed, and how many of
them are needed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import NDArray

from fedaux.core.failures import OrderError
from fedaux.messages import SumTerms
from fedaux.privacy.roster import simulated_key

LEAST_SITES = 3
MOST_SITES = 300  # each pair of sites has a mask of its own
ALL_BELOW = 6  # sites of which all are needed


class SecureSumError(OrderError):
    """A message that the protocol does not allow, or a sum with too few sites. No
    secret has left.
    """


def least_threshold(sites: int) -> int:
    """The smallest t for n sites: more than two thirds. All of fewer than six."""
    if sites < ALL_BELOW:
        return sites
    return 2 * sites // 3 + 1


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
            f"Cannot protect a secure sum: with {colluders} of {sites} sites on the "
            f"server's side, a sum that needs {threshold} protects no one. Raise "
            "federation.threshold, lower federation.colluders, or ask more sites."
        )
    return threshold - colluders


def sum_settings(terms: SumTerms, roster: Mapping[str, bytes] | None) -> SumSettings:
    """Return what all sites agree on: the terms, and the keys of the sites from this
    party's own roster.

    Simulated sites have no roster, None: their keys follow from their names.
    """
    if roster is None:
        roster = _simulated_roster(terms.sites)
    missing = [name for name in terms.sites if name not in roster]
    if missing:
        raise SecureSumError(
            f"Cannot take part in a secure sum: {', '.join(missing)} is not in this "
            "site's roster. Install the server's newest roster at this site."
        )
    keys = {name: roster[name] for name in terms.sites}
    purpose = json.dumps([terms.order, terms.attempt, terms.colluders, terms.scale])
    return SumSettings(terms.run, purpose, keys, terms.threshold, terms.length)


def _simulated_roster(sites: Iterable[str]) -> dict[str, bytes]:
    roster = {}
    for name in sites:
        public = simulated_key(name).public_key()
        roster[name] = public.public_bytes_raw()
    return roster


@dataclass(frozen=True)
class SumSettings:
    """What all sites of a sum must agree on. It is part of everything that they sign
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
        sites = len(self.roster)
        if not LEAST_SITES <= sites <= MOST_SITES:
            raise SecureSumError(
                f"Cannot form a secure sum: it needs {LEAST_SITES} to {MOST_SITES} "
                f"sites, and there are {sites}. Change the number of sites."
            )
        least = least_threshold(sites)
        if not least <= self.threshold <= sites:
            raise SecureSumError(
                f"Cannot form a secure sum: of {sites} sites a sum needs between "
                f"{least} and {sites}, not {self.threshold}. Change "
                "federation.threshold."
            )
        if self.length < 1:
            raise SecureSumError(
                "Cannot form a secure sum: it needs vectors of at least one number. "
                "Start the run again."
            )

    @cached_property
    def context(self) -> bytes:
        """Identifies the sum bit for bit."""
        roster = [(name, self.roster[name].hex()) for name in sorted(self.roster)]
        agreed = [
            "fedaux secure sum 2",
            self.run,
            self.purpose,
            roster,
            self.threshold,
            self.length,
        ]
        return hashlib.sha256(json.dumps(agreed).encode()).digest()

    def has_room_for(self, vector: NDArray[np.int64]) -> bool:
        """Whether the numbers are so small that the sum over all sites cannot
        overflow.
        """
        limit = 2**63 // len(self.roster)
        within = (-limit < vector) & (vector < limit)
        return bool(within.all())

    def position(self, name: str) -> int:
        """From 1 on: the point at which a site's shares are evaluated."""
        return sorted(self.roster).index(name) + 1

    def verify(self, name: str, signature: bytes, message: bytes) -> None:
        if name not in self.roster:
            raise SecureSumError(
                f"Cannot check a message: {name!r} is not in this site's roster. "
                "Install the server's newest roster at this site."
            )
        key = Ed25519PublicKey.from_public_bytes(self.roster[name])
        try:
            key.verify(signature, message)
        except InvalidSignature as error:
            raise SecureSumError(
                f"Cannot check a message: a message of {name} does not bear its "
                "signature. Compare the fingerprint of the roster with that of the "
                "server."
            ) from error

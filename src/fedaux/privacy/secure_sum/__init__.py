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

A module each: what the sites agree on (`settings`), session keys (`keys`), masks
(`masks`), sharing of secrets (`shamir`), a site's part in the five messages (`site`)
and the server's last step (`unmasking`). Primitives are those of `cryptography`.
"""

from fedaux.privacy.secure_sum.keys import Keys
from fedaux.privacy.secure_sum.settings import (
    SecureSumError,
    SumSettings,
    agreed_threshold,
    honest_sites,
    least_threshold,
    sum_settings,
)
from fedaux.privacy.secure_sum.site import SiteState, new_site
from fedaux.privacy.secure_sum.unmasking import Unmasking, unmasked_sum

__all__ = [
    "Keys",
    "SecureSumError",
    "SiteState",
    "SumSettings",
    "Unmasking",
    "agreed_threshold",
    "honest_sites",
    "least_threshold",
    "new_site",
    "sum_settings",
    "unmasked_sum",
]

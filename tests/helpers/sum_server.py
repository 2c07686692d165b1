"""Simulated sites of a secure sum, asked step by step as a server would."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux import Config
from fedaux.client.secure_sums import Participation, take_part
from fedaux.client.site import Site
from fedaux.config.sections import DataConfig, FederationConfig
from fedaux.core.messages import Arrays, Masked, SumOrder, SumsOrder, SumTerms, statistic
from fedaux.privacy.secure_sum import Keys, Unmasking, sum_settings, unmasked_sum
from helpers.samples import sums_order

NAMES = [f"client-{number:03}" for number in range(6)]
CONFIG = Config(method="ridge", data=DataConfig(clients=6), federation=FederationConfig(secure=True))
TERMS = SumTerms("run", statistic(sums_order()), 0, NAMES, 5, 1, 0.0, 3)


def vector(name: str) -> NDArray[np.int64]:
    return np.array([NAMES.index(name) + 1, -7, 10**12], np.int64)


@dataclass
class SumServer:
    """Asks simulated sites as a server would; `drops` are sites that do not answer a step."""

    vault: Path
    terms: SumTerms = TERMS

    def site(self, name: str) -> Site:
        return Site(CONFIG, self.vault, (name,))

    def ask(self, name: str, step: str, arrays: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
        received = {key: np.frombuffer(value, np.uint8) for key, value in (arrays or {}).items()}
        reply = take_part(SumOrder(name, self.terms.to_json(), step, received), self.site(name))
        assert (reply.client, reply.step) == (name, step)
        return {key: value.tobytes() for key, value in reply.arrays.items()}

    def keys(self) -> dict[str, bytes]:
        return {name: self.ask(name, "keys")[name] for name in self.terms.sites}

    def order(self, name: str, shares: Mapping[str, Mapping[str, bytes]]) -> SumsOrder:
        sealed: Arrays = {one: np.frombuffer(shares[one][name], np.uint8) for one in shares if one != name}
        return replace(sums_order(name), sum=self.terms.to_json(), sealed=sealed)

    def masked(self, name: str, shares: Mapping[str, Mapping[str, bytes]], scale: float = 0.0) -> Masked:
        order = self.order(name, shares)
        return Participation.of(order, self.site(name)).answer(order, lambda request: vector(name), scale)

    def shares(self) -> dict[str, dict[str, bytes]]:
        keys = self.keys()
        return {name: self.ask(name, "shares", keys) for name in keys}

    def signatures(self, survivors: list[str]) -> dict[str, bytes]:
        names = dict.fromkeys(survivors, b"")
        return {name: self.ask(name, "survivors", names)[name] for name in survivors}

    def total(self, lost: tuple[str, ...] = ()) -> NDArray[np.int64]:
        keys, shares = self.keys(), self.shares()
        vectors = {name: self.masked(name, shares).arrays["masked"] for name in keys if name not in lost}
        signatures = self.signatures(list(vectors))
        replies = [Unmasking.from_bytes(name, self.ask(name, "unmask", signatures)) for name in vectors]
        public = {name: Keys.from_bytes(name, text) for name, text in keys.items()}
        return unmasked_sum(sum_settings(self.terms, None), public, vectors, keys, replies)

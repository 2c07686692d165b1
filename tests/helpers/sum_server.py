"""Sites of a secure sum in this process, asked step by step by a server that may lie.

Every message passes the one way into a site, `client.handlers.answer`. Sites are
simulated, with a part of the bundled digits each, or real ones (`helpers.own_sites`),
with rosters and keys of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux import Config
from fedaux.client import handlers
from fedaux.client.site import Site
from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.messages import (
    DataOrder,
    Masked,
    PrepareOrder,
    SumOrder,
    SumReply,
    SumsOrder,
    SumTerms,
    identity,
)
from fedaux.messages.replies import sums_shapes
from fedaux.methods.hooks import hooks_of
from fedaux.methods.summed_update import update_shapes, vector_length
from fedaux.privacy.account_file import Entry, read_account
from fedaux.privacy.roster import Roster, read_roster
from fedaux.privacy.secure_sum import (
    Keys,
    Unmasking,
    agreed_threshold,
    honest_sites,
    sum_settings,
    unmasked_sum,
)
from fedaux.scoring.pooled import shared_noise_scale
from fedaux.scoring.registry import make_scorer
from fedaux.server.preparation import initial_state
from fedaux.server.server import make_server
from helpers import own_sites
from helpers.own_sites import OwnSites

NAMES = [f"client-{number:03}" for number in range(6)]
SUMS = Config(
    method="ridge",
    rounds=2,
    prototypes=(PrototypeSpec.of("mlp", hidden=8, features=8),),
    data=DataConfig(clients=len(NAMES), alpha=1.0),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(epochs=1),
    distill=DistillConfig(epochs=1),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=4),
    federation=FederationConfig(secure=True),
)
MODELS = replace(SUMS, method="fedavg")
RELEASES = replace(SUMS, method="private-head")
Shares = Mapping[str, Mapping[str, bytes]]  # by who has sent them, and for whom


@cache
def order_of(config: Config) -> DataOrder:
    """Return the first order of a run with this configuration, to any of its sites."""
    # no features are kept
    server = replace(make_server(config, cache=Path()), cache=None)
    state = initial_state(server)
    client = server.clients[0]
    if config.releases:
        return server.orders.prepare(state, client)
    if config.analytic_head is not None:
        return server.orders.sums(state, client, config.analytic_head.sends)
    return server.orders.train(state, client)


def terms_of(order: DataOrder, config: Config, names: list[str]) -> SumTerms:
    """Return the terms of an honest server."""
    own = config.federation
    threshold = agreed_threshold(len(names), own.threshold)
    run = getattr(order, "run", "run")
    scale = 0.0
    if isinstance(order, PrepareOrder):
        honest = honest_sites(threshold, len(names), own.colluders)
        scorer = make_scorer(config.privacy, order.classes)
        scale = shared_noise_scale(scorer, order.public, config.privacy, honest)
    return SumTerms(
        run,
        identity(order),
        0,
        list(names),
        threshold,
        own.colluders,
        scale,
        length_of(order),
    )


def length_of(order: DataOrder) -> int:
    """Return how many numbers a site adds to the sum."""
    if isinstance(order, PrepareOrder):
        return order.size
    if isinstance(order, SumsOrder):
        return vector_length(sums_shapes(order.classes, order.width, order.sends))
    return vector_length(
        update_shapes(order, hooks_of(order.method, json.loads(order.method_options)))
    )


@dataclass(frozen=True)
class SumServer:
    """One sum: its sites by name, the order that they are asked, and its terms;
    `roster` is that of real sites.
    """

    sites: Mapping[str, Site]
    order: DataOrder
    terms: SumTerms
    roster: Roster | None = None

    @classmethod
    def simulated(cls, vault: Path, features: Path, config: Config = SUMS) -> SumServer:
        """A sum of simulated sites; features of their records are computed where they
        are not in `features` yet.
        """
        order = order_of(config)
        sites = {
            name: Site(config, vault, (name,), features, keeps_results=False)
            for name in NAMES
        }
        return cls(sites, order, terms_of(order, config, NAMES))

    @classmethod
    def of(cls, own: OwnSites) -> SumServer:
        order = order_of(own.config)
        names = list(own_sites.NAMES)
        sites = {name: Site(own.own[name], own.vault(name), (name,)) for name in names}
        roster = read_roster(own.vault(names[0]) / "roster.json")
        return cls(sites, order, terms_of(order, own.config, names), roster)

    def with_terms(self, **changes: Any) -> SumServer:
        """Another sum of the same sites and the same order."""
        return replace(self, terms=replace(self.terms, **changes))

    def asking(self, **changes: Any) -> SumServer:
        """Another sum of the same sites, of another order, with terms that are
        for it.
        """
        order = replace(self.order, **changes)
        terms = replace(self.terms, order=identity(order), length=length_of(order))
        return replace(self, order=order, terms=terms)

    def with_settings(self, config: Config) -> SumServer:
        """The same sum, at sites whose owners have changed their settings."""
        return replace(
            self,
            sites={
                name: replace(site, config=config) for name, site in self.sites.items()
            },
        )

    def begin(self, name: str, **changes: Any) -> bytes:
        """Send the order with the terms of this sum, and return the site's keys."""
        asked = replace(self.order, client=name, sum=self.terms.to_json(), **changes)
        reply = handlers.answer(asked, self.sites[name])
        assert isinstance(reply, SumReply)
        assert (reply.client, reply.step, set(reply.arrays)) == (name, "keys", {name})
        return reply.arrays[name].tobytes()

    def ask(
        self, name: str, step: str, content: Mapping[str, bytes] | None = None
    ) -> dict[str, bytes]:
        reply = handlers.answer(self._step(name, step, content or {}), self.sites[name])
        assert isinstance(reply, SumReply)
        assert (reply.client, reply.step) == (name, step)
        return {key: value.tobytes() for key, value in reply.arrays.items()}

    def masked(self, name: str, shares: Shares) -> Masked:
        """Ask a site for its vector under the masks of all sites that have sent these
        shares.
        """
        sealed = {sender: to[name] for sender, to in shares.items() if sender != name}
        reply = handlers.answer(self._step(name, "masked", sealed), self.sites[name])
        assert isinstance(reply, Masked)
        assert (reply.client, set(reply.arrays)) == (name, {"masked"})
        return reply

    def keys(self) -> dict[str, bytes]:
        return {name: self.begin(name) for name in self.terms.sites}

    def shares(self) -> dict[str, dict[str, bytes]]:
        keys = self.keys()
        return {name: self.ask(name, "shares", keys) for name in keys}

    def signatures(self, survivors: list[str]) -> dict[str, bytes]:
        names = dict.fromkeys(survivors, b"")
        return {name: self.ask(name, "survivors", names)[name] for name in survivors}

    def total(self, lost: tuple[str, ...] = ()) -> NDArray[np.int64]:
        """Go through all steps; sites that are lost share their secrets, and send no
        vector.
        """
        keys, shares = self.keys(), self.shares()
        vectors = {
            name: self.masked(name, shares).arrays["masked"]
            for name in keys
            if name not in lost
        }
        signatures = self.signatures(list(vectors))
        replies = [
            Unmasking.from_bytes(name, self.ask(name, "unmask", signatures))
            for name in vectors
        ]
        public = {name: Keys.from_bytes(name, text) for name, text in keys.items()}
        return unmasked_sum(
            sum_settings(self.terms, self.roster), public, vectors, keys, replies
        )

    def vector(self, name: str) -> NDArray[np.int64]:
        """What a site adds to a sum without noise."""
        assert not isinstance(self.order, PrepareOrder)
        return handlers.vector_of(replace(self.order, client=name), self.sites[name])

    def entries(self, name: str) -> list[Entry]:
        """What a site has entered in its account, at some cost."""
        _, entries = read_account(self.sites[name].account_folder(name))
        return [entry for entry in entries if entry.mechanism.steps > 0]

    def folder(self, name: str) -> Path:
        """Where a site keeps what it remembers of sums."""
        return self.sites[name].account_folder(name) / "sums"

    def _step(self, name: str, step: str, content: Mapping[str, bytes]) -> SumOrder:
        received = {
            key: np.frombuffer(value, np.uint8) for key, value in content.items()
        }
        return SumOrder(name, self.terms.to_json(), step, received)

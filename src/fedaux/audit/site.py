"""A site in a folder of its own, with data on disk and the real client handlers, and a
hostile server.

A client draws noise once for a request, and stores the release. To draw again, the
vault is deleted; cached features are kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fedaux.audit.result import AttackResult
from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Refusal
from fedaux.flower import client_app
from fedaux.flower.federation import read_reply
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import serialize
from fedaux.messages import (
    ORDERS,
    HelloOrder,
    LookOrder,
    Order,
    PrepareOrder,
    Release,
    SumsOrder,
    Tallies,
    TrainOrder,
)
from fedaux.models import build, flatten_state
from fedaux.models.registry import Prototype
from fedaux.privacy.mechanism import epsilon_of
from fedaux.scoring.features import extractor_hash
from fedaux.scoring.registry import make_scorer

SITE_NAME = "site"


@dataclass(frozen=True)
class AuditedSite:
    """`config` are the owner's settings. `folder` holds the vault and the cached
    features.
    """

    folder: Path
    config: Config
    names: tuple[str, ...] = (SITE_NAME,)

    @property
    def vault(self) -> Path:
        return self.folder / "vault"

    @cached_property
    def _node_settings(self) -> dict[str, str]:
        return {
            "config": json.dumps(self.config.to_dict()),
            "vault": str(self.vault),
            "clients": ",".join(self.names),
            "features": str(self.folder / "features"),
        }

    @property
    def grid(self) -> InProcessGrid:
        """A federation of this site alone."""
        return InProcessGrid(client_app.app, 1, self._node_settings)

    def message(self, content: Any, kind: str) -> Message:
        """Send any message, and return the reply."""
        return ask(self.grid, content, kind)

    def send(self, order: HelloOrder | Order) -> Message:
        return self.message(serialize(order), ORDERS[type(order)])

    def release(self, order: PrepareOrder) -> Release:
        return read_reply(Release, self.send(order))

    def forget(self) -> None:
        """Delete the account and all releases."""
        shutil.rmtree(self.vault, ignore_errors=True)

    def with_known_noise(self) -> AuditedSite:
        """Return the same site with noise from one known seed."""
        privacy = replace(self.config.privacy, unsafe_seed=1)
        return replace(self, config=replace(self.config, privacy=privacy))


def ask(grid: InProcessGrid, content: Any, kind: str) -> Message:
    """The reply of the grid's only node."""
    (node,) = grid.get_node_ids()
    (reply,) = grid.send_and_receive([Message(content, node, kind)])
    return reply


def refused(reply: Message) -> bool:
    """Whether a reply is a `Refusal`."""
    return reply.has_error() and reply.error.reason in set(Refusal)


def compare_releases(
    sites: Sequence[AuditedSite], order: PrepareOrder, detail: str
) -> AttackResult:
    """How far two neighbours' releases lie apart, exactly: their noise comes from one
    known seed, and cancels.
    """
    replies = []
    for site in sites:
        site.forget()
        replies.append(site.with_known_noise().send(order))
    privacy = sites[0].config.privacy
    return compare_replies(replies, privacy.epsilon, privacy.delta, detail)


def compare_replies(
    replies: Sequence[Message], epsilon: float, delta: float, detail: str
) -> AttackResult:
    """The same of replies, under the claim (`epsilon`, `delta`). Whether neighbours
    answer, and the size that they state, must be the same as well.
    """
    refusals = [refused(reply) for reply in replies]
    if all(refusals):
        return AttackResult(epsilon, 0.0, f"{detail}: both neighbours refuse the order")
    if any(refusals):
        detail = f"{detail}: one neighbour answers, the other does not"
        return AttackResult.exact(True, detail)
    first, second = (read_reply(Release, reply) for reply in replies)
    if first.records != second.records:
        detail = f"{detail}: the sizes {first.records} and {second.records} are sent"
        return AttackResult.exact(True, detail)
    difference = first.arrays["values"] - second.arrays["values"]
    moved = float(np.linalg.norm(difference.astype(np.float64)))
    times = moved / first.sensitivity
    detail = f"{detail}: moved {times:.3g} times as far as is claimed"
    if moved == 0:
        return AttackResult(epsilon, 0.0, detail)
    # two Gaussians of one scale: their distance alone decides ε
    return AttackResult(epsilon, epsilon_of(first.scale / moved, delta), detail)


@dataclass(frozen=True, eq=False)
class HostileServer:
    """A hostile server: it chooses extractor, public map and weights as it likes."""

    config: Config
    classes: int
    model: Prototype = field(repr=False)

    @classmethod
    def against(
        cls, site: AuditedSite, shape: tuple[int, ...], classes: int
    ) -> HostileServer:
        model = build(site.config.prototypes[0], shape, classes, 0)
        return cls(site.config, classes, model)

    @property
    def width(self) -> int:
        return self.model.head.in_features

    def map(self, mean: float = 0.0, column: NDArray[Any] | None = None) -> Arrays:
        """φ is the sign of one feature, or of a combination of them, less a
        threshold.
        """
        if column is None:
            column = np.eye(self.width)[0]
        basis = np.zeros((self.width, 1), np.float32)
        basis[:, 0] = column
        threshold = np.full(self.width, mean, np.float32)
        return {"mean": threshold * (basis[:, 0] != 0), "basis": basis}

    def _network_fields(self) -> dict[str, Any]:
        """The fields of an order that say what the network is."""
        spec = self.config.prototypes[0].to_json()
        extractor = flatten_state(self.model.features)
        return {
            "prototype": spec,
            "h0": extractor_hash(extractor, spec),
            "extractor": extractor,
            "classes": self.classes,
        }

    def prepare(self, public: Arrays, client: str = SITE_NAME) -> PrepareOrder:
        """Release scores under this public map."""
        scorer = make_scorer(self.config.privacy, self.classes)
        if scorer.name == "class-moments" and "split" not in public:
            public = {**public, "split": np.full(3, 0.57, np.float32)}
        return PrepareOrder(
            client,
            scorer=scorer.name,
            size=scorer.size(public),
            known_entries=0,
            public=public,
            **self._network_fields(),
        )

    def sums(self, sends: str, client: str = SITE_NAME) -> SumsOrder:
        """Sum up features of the server's extractor."""
        random_features = self.config.random_features
        return SumsOrder(
            client,
            sends=sends,
            width=random_features or self.width,
            random_features=random_features,
            **self._network_fields(),
        )

    def look(self, tallies: Tallies, weights: NDArray[Any]) -> LookOrder:
        """Count held-out records by what the head (W, b), flattened, says of features
        of the server's extractor, or all records if no tally needs a model.
        """
        model: Arrays = {}
        if tallies.needs_model:
            model = {"parameters": weights.astype(np.float32)}
        return LookOrder(
            client=SITE_NAME,
            tallies=tallies.to_json(),
            size=tallies.size(self.classes),
            random_features=self.config.random_features,
            run="run",
            known_entries=0,
            weights=model,
            **self._network_fields(),
        )

    def train(self, weights: NDArray[Any], lr: float = 1.0) -> TrainOrder:
        """Train the head (W, b), flattened, on features of the server's extractor."""
        return TrainOrder(
            client=SITE_NAME,
            round=1,
            method=self.config.method,
            method_options=json.dumps(dict(self.config.method_options)),
            epochs=self.config.local.epochs,
            batch_size=self.config.local.batch_size,
            optimizer="adam",
            lr=lr,
            momentum=0.0,
            weight_decay=0.0,
            mu=0.0,
            seed=0,
            known_entries=0,
            run="",
            last_round=0,
            weights={"parameters": weights.astype(np.float32)},
            broadcast={},
            **self._network_fields(),
        )

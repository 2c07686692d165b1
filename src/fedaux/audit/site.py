"""A site in a folder of its own, with data on disk and the real client handlers, and a
hostile server.

A client draws noise once for a request, and stores the release. To draw again, the
vault is deleted; cached features are kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Message
from numpy.typing import NDArray

from fedaux.audit.attack import (
    AttackResult,
    AuditConfig,
    Vector,
    at_distance,
    distinguish,
)
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sends import needed_by
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Refusal
from fedaux.flower import client_app as client
from fedaux.flower.federation import read_reply
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import serialize
from fedaux.messages import (
    ORDERS,
    HelloOrder,
    Order,
    PrepareOrder,
    Release,
    SumsOrder,
    TrainOrder,
    Update,
)
from fedaux.models import build, flatten_state
from fedaux.models.registry import Prototype
from fedaux.scoring.features import extractor_hash
from fedaux.scoring.registry import make_scorer

NAME = "site"
IDENTITY = PrototypeSpec.of("mlp", hidden=2, features=2, norm="none")
# declared records: gradients are divided by it, which lets Adam's first step be
# inverted
MANY = 10**6
ADAM_EPSILON = 1e-8


def scores(audit: AuditConfig, **more: Any) -> dict[str, Any]:
    """Settings of a site that releases scores."""
    return {"privacy": {"epsilon": audit.epsilon, "delta": audit.delta, **more}}


def training(audit: AuditConfig, **more: Any) -> dict[str, Any]:
    """Settings of a site that trains heads for one round, in one step on all records,
    under add-remove.
    """
    privacy = {
        "epsilon": audit.epsilon,
        "epsilon_total": audit.epsilon,
        "delta": audit.delta,
        "train_rounds": 1,
        "private_training": True,
        "sample_rate": 1.0,
        "adjacency": "add-remove",
        "declared_records": MANY,
    }
    one_step = {
        "method": "fedavg",
        "head_only": True,
        "rounds": 1,
        "local": {"epochs": 1},
    }
    return {**one_step, "privacy": {**privacy, **more}}


def with_own_sends(config: Config) -> Config:
    """Let a site send what its own method needs, as `fedaux deploy init` writes it,
    unless its settings say more.
    """
    sends = config.federation.sends or needed_by(config)
    return replace(config, federation=replace(config.federation, sends=sends))


def write_rows(
    folder: Path,
    x: NDArray[Any],
    y: Iterable[int],
    classes: Sequence[str] = ("a", "b"),
    persons: Sequence[str] | None = None,
) -> Path:
    """Records as a site has them on disk: x.npy, y.npy, classes.txt and perhaps
    person.npy.
    """
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", x.astype(np.float32))
    np.save(folder / "y.npy", np.array(list(y), np.int64))
    (folder / "classes.txt").write_text("\n".join(classes), encoding="utf-8")
    if persons is not None:
        np.save(folder / "person.npy", np.array(persons))
    return folder


@dataclass(frozen=True)
class AuditedSite:
    """`config` are the owner's settings; `folder` holds the vault and the cached
    features.
    """

    folder: Path
    config: Config
    names: tuple[str, ...] = (NAME,)

    @classmethod
    def at(
        cls,
        data: Path,
        spec: PrototypeSpec = IDENTITY,
        source: str = "npy",
        person: str = "",
        names: tuple[str, ...] = (NAME,),
        **settings: Any,
    ) -> AuditedSite:
        """A site whose private records are at `data`."""
        facts = {
            "prototypes": [{"name": spec.name, **dict(spec.options)}],
            "data": {
                "source": source,
                "path": str(data),
                "partition": "own",
                "person": person,
            },
            "federation": {"sites": list(names)},
            **settings,
        }
        config = Config.from_dict(facts)
        return cls(data.parent / f"{data.stem}-site", with_own_sends(config), names)

    @cached_property
    def _settings(self) -> dict[str, str]:
        """The settings of the site's node."""
        own = {"config": json.dumps(self.config.to_dict()), "vault": str(self.vault)}
        return {
            **own,
            "clients": ",".join(self.names),
            "features": str(self.folder / "features"),
        }

    @property
    def grid(self) -> InProcessGrid:
        """A federation of this site alone."""
        return InProcessGrid(client.app, 1, self._settings)

    def message(self, content: Any, kind: str) -> Message:
        """Send any message, and return the reply."""
        return ask(self.grid, content, kind)

    def send(self, order: HelloOrder | Order) -> Message:
        return self.message(serialize(order), ORDERS[type(order)])

    def release(self, order: PrepareOrder) -> Release:
        return read_reply(Release, self.send(order))

    @property
    def vault(self) -> Path:
        return self.folder / "vault"

    def forget(self) -> None:
        """Delete the account and all releases."""
        shutil.rmtree(self.vault, ignore_errors=True)

    def values(self, order: PrepareOrder) -> Vector:
        """A release by a client with an empty account, as a vector of steps."""
        self.forget()
        return np.asarray(self.release(order).arrays["values"], np.float64)

    def noisy_sum(self, order: TrainOrder) -> Vector:
        """The noisy sum of gradients behind one step of private training, in units of
        the clipping norm.

        Adam's first step is lr·g/(|g| + 10⁻⁸) on each coordinate, which can be
        inverted.
        """
        self.forget()
        update = read_reply(Update, self.send(order))
        step = (
            order.weights["parameters"].astype(np.float64)
            - update.weights["parameters"]
        )
        part = np.clip(step / order.lr, -1 + 2**-24, 1 - 2**-24)
        return np.asarray(
            ADAM_EPSILON * part / (1 - np.abs(part)) * update.rate * update.records
        )


def ask(grid: InProcessGrid, content: Any, kind: str) -> Message:
    """The reply of the grid's only node."""
    (node,) = grid.get_node_ids()
    (reply,) = grid.send_and_receive([Message(content, node, kind)])
    return reply


def refused(reply: Message) -> bool:
    """Whether a reply is a `Refusal`."""
    return reply.has_error() and reply.error.reason in set(Refusal)


def tell_apart(
    sites: Sequence[AuditedSite],
    order: PrepareOrder | TrainOrder,
    audit: AuditConfig,
    detail: str = "",
    direction: Vector | None = None,
) -> AttackResult:
    """`distinguish` two neighbours by their replies to an order: releases, or sums
    behind a step of training.
    """
    draws = [
        partial(site.values, order)
        if isinstance(order, PrepareOrder)
        else partial(site.noisy_sum, order)
        for site in sites
    ]
    return distinguish(draws, audit, detail, direction)


def compare_releases(
    sites: Sequence[AuditedSite], order: PrepareOrder, audit: AuditConfig, detail: str
) -> AttackResult:
    """How far two neighbours' releases lie apart, exactly: their noise comes from one
    known seed, and cancels.
    """
    replies = []
    for site in sites:
        privacy = replace(site.config.privacy, unsafe_seed=1)
        site.forget()
        replies.append(
            replace(site, config=replace(site.config, privacy=privacy)).send(order)
        )
    return compare_replies(replies, audit, detail)


def compare_replies(
    replies: Sequence[Message], audit: AuditConfig, detail: str
) -> AttackResult:
    """The same of replies. Whether neighbours answer, and the size that they state,
    must be the same as well.
    """
    if all(map(refused, replies)):
        return AttackResult(
            audit.epsilon, 0.0, f"{detail}: both neighbours refuse the order"
        )
    if any(map(refused, replies)):
        return AttackResult.exact(
            True, f"{detail}: one neighbour answers, the other does not"
        )
    one, other = (read_reply(Release, reply) for reply in replies)
    if one.records != other.records:
        return AttackResult.exact(
            True, f"{detail}: the sizes {one.records} and {other.records} are sent"
        )
    moved = float(
        np.linalg.norm(
            (one.arrays["values"] - other.arrays["values"]).astype(np.float64)
        )
    )
    apart = f"moved {moved / one.sensitivity:.3g} times as far as is claimed"
    return at_distance(moved, one.scale, audit, f"{detail}: {apart}")


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
        return cls(
            site.config, classes, build(site.config.prototypes[0], shape, classes, 0)
        )

    @classmethod
    def identity(cls, site: AuditedSite) -> HostileServer:
        """Its network returns two positive numbers as they are."""
        server = cls.against(site, (2,), 2)
        set_mlp(server.model, first=np.eye(2), second=np.eye(2))
        return server

    @property
    def width(self) -> int:
        return self.model.head.in_features

    def map(self, mean: float = 0.0, column: NDArray[Any] | None = None) -> Arrays:
        """φ is the sign of one feature, or of a combination of them, less a
        threshold.
        """
        basis = np.zeros((self.width, 1), np.float32)
        basis[:, 0] = np.eye(self.width)[0] if column is None else column
        return {
            "mean": np.full(self.width, mean, np.float32) * (basis[:, 0] != 0),
            "basis": basis,
        }

    def _extractor(self) -> dict[str, Any]:
        """The fields of an order that say what the network is."""
        spec, arrays = (
            self.config.prototypes[0].to_json(),
            flatten_state(self.model.features),
        )
        return {
            "prototype": spec,
            "h0": extractor_hash(arrays, spec),
            "extractor": arrays,
            "classes": self.classes,
        }

    def prepare(self, public: Arrays, client: str = NAME) -> PrepareOrder:
        scorer = make_scorer(self.config.privacy, self.classes)
        if scorer.name == "class-moments" and "split" not in public:
            public = {**public, "split": np.full(3, 0.57, np.float32)}
        size = scorer.size(public)
        return PrepareOrder(
            client,
            scorer=scorer.name,
            size=size,
            known_entries=0,
            public=public,
            **self._extractor(),
        )

    def sums(self, sends: str, client: str = NAME) -> SumsOrder:
        """Sum up features of the server's extractor."""
        random = self.config.random_features
        width = random or self.width
        return SumsOrder(
            client,
            sends=sends,
            width=width,
            random_features=random,
            **self._extractor(),
        )

    def train(self, weights: NDArray[Any], lr: float = 1.0) -> TrainOrder:
        """Train the head (W, b), flattened, on features of the server's extractor."""
        return TrainOrder(
            client=NAME,
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
            **self._extractor(),
        )


def score_order(
    site: AuditedSite, scale: float = 1.0, client: str = NAME
) -> PrepareOrder:
    """Asks for scores under a map that has the records (1, 0) and (0, scale) at
    opposite φ.
    """
    server = HostileServer.identity(site)
    return server.prepare(server.map(column=np.array([1.0, -scale])), client)


def head_order(site: AuditedSite, round_: int = 1) -> TrainOrder:
    """Asks for a step of training from a head of zeros, with records as features."""
    return replace(HostileServer.identity(site).train(np.zeros(6)), round=round_)


def gradient(h: NDArray[Any], logits: Vector, label: int) -> Vector:
    """A record's clipped gradient by the head (W, b), flattened, as an attacker who
    knows the record computes it.
    """
    probabilities = np.exp(logits - logits.max())
    error = probabilities / probabilities.sum() - np.eye(len(logits))[label]
    flat = np.append(np.outer(error, h).ravel(), error)
    return np.asarray(flat / max(1.0, float(np.linalg.norm(flat))))


def set_mlp(
    model: Prototype,
    first: NDArray[Any] | None = None,
    hidden: NDArray[Any] | None = None,
    second: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
) -> None:
    """Set the weights and biases of an mlp's two layers; with biases only, all records
    have equal features.
    """
    with torch.no_grad():
        for parameter, values in zip(
            model.features.parameters(), (first, hidden, second, bias), strict=True
        ):
            parameter.zero_() if values is None else parameter.copy_(
                torch.tensor(values)
            )

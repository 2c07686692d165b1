"""The private head in an existing Flower app: one exchange of noisy sums, and a linear
head computed from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from torch import nn

from fedaux.config.schema import Config
from fedaux.config.sections import (
    MAX_RECORDS,
    AuxConfig,
    DataConfig,
    FederationConfig,
    PrivacyConfig,
)
from fedaux.core.errors import SettingsError
from fedaux.flower.release_strategy import AUTO, ONLY_PROTOTYPE, ReleaseStrategy, log
from fedaux.flower.user_model import input_of
from fedaux.scoring.class_counts import unknown_classes
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.teacher_weights import cap_precision
from fedaux.server.loop import quorum


class PrivateHead(ReleaseStrategy):
    """Compute the last layer of a network from the clients' releases, in one exchange.

    No model is trained, and ε protects everything that a client sends except the number
    of its records.

    Clients need `add_release_handler` with the same scorer and
    `features=input_of(head)`, but no handler that trains. Start it with `num_rounds=1`,
    in further rounds, clients that were not there before add their releases.

    Args:
        model: The network, with pre-trained weights. It is copied to `device`.
        head: The name of its last layer, an `nn.Linear` with a bias.
        public: Unlabelled rows, an array or tensor, as the model takes them.
        classes: The number of classes.
        epsilon: The ε of one release that the clients allow: dimensions are chosen for
            it. No client is bound by it.
        clients: About how many clients there are, for the same choice.
        expected_records: About how many records they have together, for the same
            choice. 0 means 10,000.
        scorer: The kind of release: class-moments, or class-embedding for sums only.
        embedding_dim: The dimension of the embedding. 0 means chosen on the public rows.
        quorum: The share of the selected clients whose releases are needed. With fewer,
            the head stays as it was.
        max_records: The largest number of records that a client may claim.
        keep: As in `FedAUX`.
        release_timeout: How long a client has to make its release, in seconds.
        seed: The seed of everything random on the server.
        device: auto (a GPU if there is one), cpu, cuda, …
        fedavg: Further arguments of Flower's FedAvg, which selects the clients.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        head: str,
        public: Any,
        classes: int,
        epsilon: float = 1.0,
        clients: int = 10,
        expected_records: int = 0,
        scorer: str = "class-moments",
        embedding_dim: int = 0,
        quorum: float = 0.5,
        max_records: int = MAX_RECORDS,
        keep: str | Path | None = AUTO,
        release_timeout: float = 3600.0,
        seed: int = 0,
        device: str = "auto",
        **fedavg: Any,
    ) -> None:
        config = Config(
            method="private-head",
            seed=seed,
            device=device,
            prototypes=(ONLY_PROTOTYPE,),
            data=DataConfig(clients=clients),
            aux=AuxConfig(negatives=0.9),
            privacy=PrivacyConfig(
                scorer,
                epsilon,
                embedding_dim=embedding_dim,
                expected_records=expected_records,
            ),
            federation=FederationConfig(
                timeout=release_timeout, quorum=quorum, max_records=max_records
            ),
        )
        super().__init__(
            config,
            model,
            input_of(head),
            public,
            classes,
            keep,
            **{"fraction_evaluate": 0.0, **fedavg},
        )
        layer = self._model.get_submodule(head)
        if not isinstance(layer, nn.Linear) or layer.bias is None:
            raise SettingsError(
                f"Cannot use head = {head!r}: it is a {type(layer).__name__}. Name the "
                "last nn.Linear, with a bias."
            )
        self._head = layer
        self._asked = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the selected clients for their release, and for nothing else: no message
        trains.
        """
        self._load(server_round, arrays)
        messages = super().configure_train(server_round, arrays, config, grid)
        nodes = {
            str(message.metadata.dst_node_id): message.metadata.dst_node_id
            for message in messages
        }
        self._asked = len(nodes)
        self._collect_releases(grid, nodes)
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Compute the head from all releases so far."""
        releases = [self.releases[node] for node in sorted(self.releases)]
        if len(releases) < quorum(self.server.config, self._asked):
            log.warning(
                "there is no head yet: %d of %d clients made a release",
                len(releases),
                self._asked,
            )
            return None, None
        assert self._embedding is not None
        scorer = cast(ClassEmbeddingScorer, self.server.scorer)
        public = self.state.public[ONLY_PROTOTYPE.label]
        released = [scorer.class_values(public, release) for release in releases]
        for label, records, deviation in unknown_classes(released):
            warning = "the head knows nothing of class %d: about %.0f ± %.0f records"
            log.warning(warning, label, max(0.0, records), deviation)
        computed = scorer.head(
            public,
            self._embedding.reference[ONLY_PROTOTYPE.label],
            cap_precision(releases),
        )
        with torch.no_grad():
            for tensor, values in zip(
                (self._head.weight, self._head.bias), computed, strict=True
            ):
                tensor.copy_(torch.from_numpy(values))
        return ArrayRecord(self._model.state_dict()), MetricRecord(
            {"fedaux-releases": len(releases)}
        )

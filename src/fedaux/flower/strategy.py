"""The server's half: FedAvg that also asks each new client for its release, and distils what the clients know."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedaux.algorithms.aggregate import Ensemble
from fedaux.algorithms.distill import distill
from fedaux.algorithms.server import DivergedError
from fedaux.config.schema import DistillConfig, PrivacyConfig
from fedaux.core.messages import Account, Arrays, Failure, Release
from fedaux.core.rng import torch_stream
from fedaux.flower.federation import read_reply, stream_replies
from fedaux.flower.in_process import CLIENT_EXCEPTION
from fedaux.flower.node_settings import SettingsError
from fedaux.flower.public import Public
from fedaux.flower.replies import Trained, sane
from fedaux.flower.serialization import MessageError, Serializer, from_array
from fedaux.flower.user_model import ACTION, Extractor, FeaturesOf, Given
from fedaux.flower.validation import InvalidReplyError, validate_reply
from fedaux.models.inference import predict
from fedaux.privacy.ledger import Ledger
from fedaux.scoring.base import bound_function
from fedaux.scoring.registry import make_scorer

log = logging.getLogger("flwr")  # where Flower's own strategies write
QUORUM = 0.5  # the share of a round's models that must be teachers: fewer would pull the student towards themselves
_REASON = 500  # characters of a reason that are logged: a client writes some of them


class FedAUX(FedAvg):
    """Flower's FedAvg, and after each average a distillation on public data, teachers weighted by their releases.

    - `model`: the network that the clients train, with the weights that features are to be computed with: pre-trained
      ones if there are any. It is copied, and runs on the CPU.
    - `features`: the name of the layer or method of the model that gives features (B, H), a function of (model, x), or
      `before("NAME")` with the name of the last layer.
    - `public`: unlabelled rows, an array or tensor, as the model takes them.
    - `keep`: a file that remembers what clients are asked with, so that a later run asks the same; their vaults answer
      one question only.
    - `patience`: seconds that a client has to make its release.

    Whatever else is given goes to FedAvg.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        public: Any,
        classes: int,
        features: str | FeaturesOf = "features",
        distill_epochs: int = 1,
        distill_lr: float = 1e-3,
        distill_batch_size: int = 128,
        scorer: str = "class-embedding",
        embedding_dim: int = 32,
        max_share: float = 1.0,
        keep: str | Path | None = None,
        patience: float = 3600.0,
        seed: int = 0,
        **fedavg: Any,
    ) -> None:
        super().__init__(**fedavg)
        self.releases: dict[str, Release] = {}  # by node
        self.classes, self.patience, self.seed = classes, patience, seed
        self.settings = DistillConfig(distill_epochs, distill_lr, distill_batch_size)
        self._model, self._mute, self._sent = copy.deepcopy(model).cpu(), set[str](), Arrays()
        self._unheard: set[str] = set()  # nodes that were asked for a release, and made none that could be used
        rows, path = Given.of(public), None if keep is None else Path(keep).expanduser()
        found = predict(self._model, rows.take(np.arange(min(2, len(rows))))).shape[1:]
        if found != (classes,):
            raise SettingsError(f"classes = {classes}, but {type(model).__name__} gives {found} numbers for a row")
        made = make_scorer(PrivacyConfig(scorer=scorer, embedding_dim=embedding_dim), classes)
        self._public = Public.of(Extractor(self._model, features), rows, made, path, seed, max_share)

    @property
    def privacy(self) -> str:
        """In words: what of this run is differentially private, and what is not."""
        accounts = {node: Account.from_json(one.account) for node, one in self.releases.items()}
        return Ledger(self.releases, accounts, unprotected_models=1, unresponsive=self._unheard).statement()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """P2, P3 for those who are chosen for the first time; then as FedAvg."""
        self._sent = {name: from_array(array) for name, array in arrays.items()}
        ours = {name: tuple(tensor.shape) for name, tensor in self._model.state_dict().items()}
        if {name: array.shape for name, array in self._sent.items()} != ours:
            raise SettingsError(
                f"the arrays of round {server_round} are not those of {type(self._model).__name__}: start with "
                "initial_arrays = ArrayRecord(model.state_dict()), of the model that FedAUX was given"
            )
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self._ask(grid, [message.metadata.dst_node_id for message in messages])
        return messages

    def _ask(self, grid: Grid, nodes: Iterable[int]) -> None:
        """Whoever fails keeps its place in the average. One that answers wrongly is not asked again in this run."""
        scorer, serializer = self._public.scorer, Serializer()
        new = [node for node in nodes if str(node) not in {*self.releases, *self._mute}]
        orders = [self._public.question.order(node, scorer, self.classes) for node in new]
        asked = zip(orders, new, strict=True)
        messages = (
            (o, Message(serializer.serialize(o), node, f"query.{ACTION}", ttl=self.patience)) for o, node in asked
        )
        for order, message in stream_replies(grid, messages, self.patience):
            if message is None or (message.has_error() and message.error.code != CLIENT_EXCEPTION):
                log.warning("node %s made no release, and is asked again when it is next chosen", order.client)
                self._unheard.add(order.client)
                continue
            try:
                made = read_reply(Release, message)
                validate_reply(order, made, bounds=bound_function(scorer))
            except (MessageError, InvalidReplyError) as error:
                log.warning("node %s has no score: %s", order.client, str(error)[:_REASON])
                self._mute.add(order.client)
                self._unheard.add(order.client)
            else:
                self._remember(made)

    def _remember(self, made: Release) -> None:
        """A client whose node came back under a new id repeats its release to the bit: the old id is forgotten."""
        same = [
            one for one, old in self.releases.items() if np.array_equal(old.arrays["values"], made.arrays["values"])
        ]
        for one in same:
            del self.releases[one]
        self.releases[made.client] = made
        self._unheard.discard(made.client)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """T2 and T3. A model that makes no sense costs that client's contribution, never the round."""
        answers = sorted(replies, key=lambda message: message.metadata.src_node_id)  # not in order of arrival
        failed = [message for message in answers if message.has_error()]
        found, failures = sane([one for one in answers if not one.has_error()], self._sent, self.weighted_by_key)
        ensemble, mistaken = self._teach(server_round, found)
        for one in [*failures, *mistaken]:
            log.warning("node %s is left out of round %d: %s", one.client, server_round, one.reason[:_REASON])
        wrong = {one.client for one in mistaken}
        kept = [one.message for one in found if one.node not in wrong]
        arrays, metrics = super().aggregate_train(server_round, [*failed, *kept])
        if arrays is None or metrics is None:
            return None, None
        self._load(arrays)
        if ensemble is not None and ensemble.taught:
            metrics["fedaux-distill-loss"] = self._distil(server_round, ensemble)
            metrics["fedaux-teachers"] = ensemble.effective_teachers()
        return ArrayRecord(self._model.state_dict()), metrics

    def _teach(self, server_round: int, found: Sequence[Trained]) -> tuple[Ensemble | None, list[Failure]]:
        """The ensemble of all that have a release, None where they are too few; and models that predict nonsense."""
        teachers = [one for one in found if one.node in self.releases]
        if not teachers or len(teachers) < QUORUM * len(found):
            said = "round %d is plain FedAvg: %d of %d models are of clients with a release"
            log.warning(said, server_round, len(teachers), len(found))
            return None, []
        weighing = self._public.weighing(self.releases, [one.node for one in teachers])
        ensemble, mistaken = Ensemble(len(self._public.distill), self.classes), []
        for one in teachers:
            self._load(one.model)
            try:
                ensemble.add(predict(self._model, self._public.distill), weighing.weights(one.node))
            except ValueError as error:
                mistaken.append(Failure(one.node, str(error)))
        return ensemble, mistaken

    def _distil(self, server_round: int, ensemble: Ensemble) -> float:
        """The average becomes a student; its loss."""
        loss = distill(
            self._model,
            self._public.distill,
            ensemble,
            epochs=self.settings.epochs,
            lr=self.settings.lr,
            batch_size=self.settings.batch_size,
            generator=torch_stream(self.seed, "distill", server_round),
        )
        if not np.isfinite(loss):
            raise DivergedError(f"distillation diverged in round {server_round}: lower distill_lr")
        return loss

    def _load(self, arrays: ArrayRecord) -> None:
        self._model.load_state_dict(arrays.to_torch_state_dict())

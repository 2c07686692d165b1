"""The server's half for an app that exists already: Flower's messages in and out, everything between them shared."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import FederationConfig, LocalConfig, PrivacyConfig
from fedaux.core.errors import Exit, FedauxError, SettingsError
from fedaux.core.messages import Arrays, Failure, PrepareOrder, Refusal, Release
from fedaux.core.timing import Costs
from fedaux.data.records import Records
from fedaux.flower.federation import GridFederation
from fedaux.flower.question_file import AUTO, default_file, first_state, log
from fedaux.flower.replies import check_replies
from fedaux.flower.serialization import from_array
from fedaux.flower.user_model import ACTION, Extractor, FeaturesOf, UserRecords
from fedaux.flower.validation import MAX_RECORDS
from fedaux.models import flatten_state, load_state
from fedaux.models.compute import place_by_settings
from fedaux.models.inference import predict
from fedaux.scoring.base import bound_function
from fedaux.scoring.public_data import PublicData
from fedaux.scoring.registry import make_scorer
from fedaux.server.loop import quorum
from fedaux.server.networks import Learners
from fedaux.server.orders import Orders
from fedaux.server.releases import collect_releases
from fedaux.server.round import Round
from fedaux.server.server import Server

MODEL = PrototypeSpec("model")  # the one prototype there is
_MAX_REASON = 500  # characters to log: clients write some of the reasons


class SpentError(FedauxError, RuntimeError):
    """Every client's budget is spent on another question."""

    code = Exit.PRIVACY


class FedAUX(FedAvg):
    """Flower's FedAvg, and after each average a distillation on public data, teachers weighted by their releases.

    - `model`: the network that the clients train, with the weights that features are to be computed with: pre-trained
      ones if there are any. It is copied to `device`, a GPU if there is one.
    - `features`: the name of the layer or method of the model that gives features (B, H), a function of (model, x), or
      `before("NAME")` with the name of the last layer.
    - `public`: unlabelled rows, an array or tensor, as the model takes them.
    - `teacher_weights`, `max_share`, `examples`: how much a client's model counts on each public row, and how many rows
      a round takes, as `[teachers]` of a run.
    - `scorer`, `embedding_dim`, `ratio`, `ridge`: how clients summarise their data, as `[privacy]` of a run.
    - `quorum`: the share of the clients asked whose models a round needs; fewer leave the model as it was.
    - `max_records`: that one client may claim to have.
    - `keep`: a file that remembers what clients are asked with, so that a later run asks the same: their vaults answer
      one question only. By default one in ~/.fedaux, for this network, public data and scorer; None keeps nothing.
    - `release_timeout`: seconds that a client has to make its release.

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
        teacher_weights: Any = "odds",
        max_share: float = 1.0,
        examples: int = 0,
        scorer: str = "class-embedding",
        embedding_dim: int = 32,
        ratio: Any = "bayes",
        ridge: float = 0.01,
        quorum: float = 0.0,
        max_records: int = MAX_RECORDS,
        keep: str | Path | None = AUTO,
        release_timeout: float = 3600.0,
        seed: int = 0,
        device: str = "auto",
        **fedavg: Any,
    ) -> None:
        super().__init__(**fedavg)
        config = Config(
            seed=seed,
            device=device,
            prototypes=(MODEL,),
            local=LocalConfig(batch_size=1),  # clients train as they like, for steps in proportion to their records
            distill=DistillConfig(distill_epochs, distill_lr, distill_batch_size),
            teachers=TeachersConfig(teacher_weights, max_share, examples=examples),
            privacy=PrivacyConfig(scorer, embedding_dim=embedding_dim, ratio=ratio, ridge=ridge),
            federation=FederationConfig(timeout=release_timeout, quorum=quorum, max_records=max_records),
        )
        self._model, rows = place_by_settings(copy.deepcopy(model), device, "float32"), UserRecords.of(public)
        width = predict(self._model, rows.take(np.arange(min(2, len(rows))))).shape[1:]
        if width != (classes,):
            raise SettingsError(f"classes = {classes}, but {type(model).__name__} gives {width} numbers for a row")
        extractor = Extractor(self._model, features)
        self.server = _server(config, self._model, extractor, rows, classes)
        if keep == AUTO:
            keep = default_file(model, self.server.public.aux, vars(config.privacy), classes, seed)
        self.state = first_state(self.server, MODEL.label, None if keep is None else Path(keep).expanduser())
        self._embedding = self.server.restore(self.state)
        self._sent = Arrays()
        self._round: Round | None = None
        self._asked = 0

    @property
    def releases(self) -> dict[str, Release]:
        """By node."""
        return self.state.releases

    @property
    def privacy(self) -> str:
        """In words: what of this run is differentially private, and what is not."""
        return self.state.ledger.statement()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """P2, P3 for those who are chosen for the first time; then as FedAvg."""
        self._sent = {name: from_array(array) for name, array in arrays.items()}
        shapes = {name: tuple(tensor.shape) for name, tensor in self._model.state_dict().items()}
        if {name: array.shape for name, array in self._sent.items()} != shapes:
            raise SettingsError(
                f"the arrays of round {server_round} are not those of {type(self._model).__name__}: start with "
                "initial_arrays = ArrayRecord(model.state_dict()), of the model that FedAUX was given"
            )
        self._model.load_state_dict(arrays.to_torch_state_dict())
        self.state = replace(self.state, round=server_round - 1, weights={MODEL.label: flatten_state(self._model)})
        messages = list(super().configure_train(server_round, arrays, config, grid))
        nodes = {str(message.metadata.dst_node_id): message.metadata.dst_node_id for message in messages}
        failures = self._collect_releases(grid, nodes)
        self._asked = len(nodes)
        self._round = Round.start(self.server, self._embedding, self.state, list(nodes), Costs())
        self._round.failures += failures
        return messages

    def _collect_releases(self, grid: Grid, nodes: dict[str, int]) -> list[Failure]:
        policy, bounds = self.server.config.federation, bound_function(self.server.scorer)
        types: dict[type, str] = {PrepareOrder: f"query.{ACTION}"}
        federation = GridFederation(
            grid,
            nodes,
            policy.timeout,
            policy.max_records,
            bounds=bounds,
            message_types=types,
        )
        self.state, failures = collect_releases(self.server, federation, self.state, list(nodes), Costs())
        self.state = replace(self.state, releases=_without_repeats(self.state.releases))
        for failure in failures:
            log.warning("node %s has %s", failure.client, failure.reason[:_MAX_REASON])
        if failures and not self.state.releases and all(_is_spent(failure) for failure in failures):
            raise SpentError(
                f"all {len(failures)} clients refuse to make a release: {Refusal.BUDGET.description}. They have "
                "answered another question before: another network, other weights, other public data or another "
                "scorer. Without releases this would be plain FedAvg. Give `keep` the file of the run that they have "
                "answered, or let their owners raise epsilon_total"
            )
        return failures

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """T2 and T3. A model that makes no sense costs that client's contribution, never the round."""
        answers, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        answers.sort(key=lambda message: message.metadata.src_node_id)  # metrics do not depend on the order of arrival
        current, config = self._round, self.server.config
        if current is None or not answers:
            return None, None
        known = len(current.failures)
        good, failures = check_replies(answers, self._sent, self.weighted_by_key, config.federation.max_records)
        for reply in good:
            self._model.load_state_dict(reply.model.to_torch_state_dict())
            current.add(reply.update(server_round, flatten_state(self._model)))
        current.failures += failures
        for failure in current.failures[known:]:
            log.warning(
                "node %s is left out of round %d: %s", failure.client, server_round, failure.reason[:_MAX_REASON]
            )
        kept = [reply.content for reply in good if reply.node in current.client_metrics]
        if len(kept) < quorum(config, self._asked):
            log.warning("round %d is lost: %d of %d models can be used", server_round, len(kept), self._asked)
            return None, None
        return self._finish(current), self._metrics(current, kept)

    def _finish(self, current: Round) -> ArrayRecord:
        self.state = current.finish(self.state)
        load_state(self._model, self.state.weights[MODEL.label])
        return ArrayRecord(self._model.state_dict())

    def _metrics(self, current: Round, kept: list[RecordDict]) -> MetricRecord:
        """The app's own metrics as Flower aggregates them, and those of the distillation."""
        metrics = self.train_metrics_aggr_fn(kept, self.weighted_by_key)
        result = self.state.history[-1]
        if result.distill_loss is None or result.effective_teachers is None:
            total = current.total
            text = "round %d is plain FedAvg: %d of %d models are of clients with a release"
            log.warning(text, current.number, total.teachers, total.clients)
        else:
            metrics["fedaux-distill-loss"] = result.distill_loss
            metrics["fedaux-teachers"] = result.effective_teachers
        return metrics


def _server(config: Config, model: nn.Module, extractor: nn.Module, rows: Records, classes: int) -> Server:
    """The parts of a server around one network that this package has not built; nothing is tested."""
    learners = Learners({}, {MODEL.label: extractor}, {MODEL.label: model})
    public = PublicData(rows, None, config.aux.negatives, config.seed)
    scorer = make_scorer(config.privacy, classes)
    orders = Orders(config, classes, scorer, learners, public, lambda node: MODEL)
    return Server(config, classes, (), learners, public, scorer, orders)


def _is_spent(failure: Failure) -> bool:
    return failure.reason.endswith(Refusal.BUDGET.description)


def _without_repeats(releases: Mapping[str, Release]) -> dict[str, Release]:
    """A client whose node came back under a new id repeats its release to the bit: the old id is forgotten."""
    latest = {release.arrays["values"].tobytes(): node for node, release in releases.items()}
    return {node: releases[node] for node in latest.values()}

"""The server's side for an existing Flower app: Flower's messages in and out,
everything in between is shared code.

A round uses the replies that can be averaged, whereas Flower's FedAvg uses either all
replies or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import nn

from fedaux.config.distillation import DISTILL_STEPS, DistillConfig, TeachersConfig
from fedaux.config.schema import Config
from fedaux.config.sections import (
    MAX_RECORDS,
    FederationConfig,
    LocalConfig,
    PrivacyConfig,
)
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Failure
from fedaux.core.timing import Costs
from fedaux.flower.release_strategy import (
    AUTO,
    MAX_REASON,
    ONLY_PROTOTYPE,
    ReleaseStrategy,
    log,
)
from fedaux.flower.serialization import MessageError, from_array
from fedaux.flower.user_model import FeaturesOf
from fedaux.flower.validation import check_form, check_norms
from fedaux.messages import InvalidReplyError, Update
from fedaux.models import flatten_state, load_state
from fedaux.server.loop import quorum
from fedaux.server.round import Round


@dataclass(frozen=True, eq=False)
class TrainReply:
    """A reply that can be averaged: the model in it, and the number of records behind
    it.
    """

    node: str
    content: RecordDict
    model: ArrayRecord
    records: int

    def update(self, round_: int, weights: Arrays) -> Update:
        """Make an update of `weights`, flat arrays. The app trains without noise. Its
        release has told its account.
        """
        return Update(
            self.node,
            round_,
            self.records,
            0.0,
            0.0,
            noise=0.0,
            rate=1.0,
            steps=0,
            account="",
            weights=weights,
        )


def check_replies(
    replies: Iterable[Message], sent: Arrays, size_key: str, max_records: int
) -> tuple[list[TrainReply], list[Failure]]:
    """Return the replies that match the sent model and the usual metrics, and what is
    wrong with the others.
    """
    forms = [(message, form(message.content)) for message in replies]
    counted = Counter(its_form for _, its_form in forms)
    usual = counted.most_common(1)[0][0] if forms else ""
    good = []
    failures = []
    for message, its_form in forms:
        node = str(message.metadata.src_node_id)
        content = message.content
        try:
            if its_form != usual:
                raise InvalidReplyError(
                    f"its reply holds {its_form}, but most others hold {usual}"
                )
            model, records = read_model(content, sent, size_key, max_records)
        except (InvalidReplyError, MessageError) as error:
            failures.append(Failure(node, str(error)))
            continue
        good.append(TrainReply(node, content, model, records))
    return good, failures


def read_model(
    content: RecordDict, sent: Arrays, size_key: str, max_records: int
) -> tuple[ArrayRecord, int]:
    """Return the model of a reply, finite and shaped like the sent one, and its number
    of records, if plausible.
    """
    models = [record for record in content.values() if isinstance(record, ArrayRecord)]
    metrics = [
        record for record in content.values() if isinstance(record, MetricRecord)
    ]
    if len(models) != 1 or len(metrics) != 1:
        raise InvalidReplyError(
            f"sends {len(models)} ArrayRecords and {len(metrics)} MetricRecords, one "
            "of each is expected"
        )
    size = metrics[0].get(size_key, 0)
    if isinstance(size, list) or not 1 <= size <= max_records or size != int(size):
        raise InvalidReplyError(
            f"states {size_key} = {size}, but only numbers from 1 to {max_records} are "
            "believed"
        )
    received = {name: from_array(array) for name, array in models[0].items()}
    check_form(sent, received)
    check_norms(sent, received)
    return models[0], int(size)


def form(content: RecordDict) -> str:
    """Describe a reply by its records and metrics, lists by length: replies with the
    same form can be averaged.
    """
    metrics = {
        name: record
        for name, record in content.items()
        if isinstance(record, MetricRecord)
    }
    lengths = {
        name: sorted(
            (key, len(value) if isinstance(value, list) else 0)
            for key, value in record.items()
        )
        for name, record in metrics.items()
    }
    return f"{sorted(content)} with metrics {lengths}"


class FedAUX(ReleaseStrategy):
    """Flower's FedAvg, followed each round by distillation on public data with teachers
    weighted by their releases.

    Args:
        model: The network that the clients train, with the weights that features are
            computed with, pre-trained ones if there are any. It is copied to `device`.
        public: Unlabelled rows for the distillation, an array or tensor, as the model
            takes them.
        classes: The number of classes.
        features: The name of the layer or method of the model that returns features (B,
            H), a function of (model, x), or `input_of("NAME")` with the name of the
            last layer.
        distill_steps: Steps of distillation per round.
        distill_lr: The learning rate of the distillation.
        distill_batch_size: The batch size of the distillation.
        teacher_weights: How much a client's model counts on each public row, as in
            `[teachers]` of a run.
        max_share: The largest share of the weight that one client may have on a row, as
            in `[teachers]` of a run.
        examples: The number of public rows that a round uses, as in `[teachers]` of a
            run. 0 means all.
        scorer: How clients summarise their data, as in `[privacy]` of a run.
        embedding_dim: The dimension of the scorer's embedding, as in `[privacy]` of a
            run.
        ridge: The regularisation of the scorer, as in `[privacy]` of a run.
        quorum: The share of the selected clients whose models a round needs. With
            fewer, the model stays as it was.
        max_records: The largest number of records that a client may claim.
        keep: A file that keeps what clients are asked with, so that a later run asks
            the same: a client's vault answers only one question. By default a file in
            ~/.fedaux for this network, public data and scorer. None means no file.
        release_timeout: How long a client has to make its release, in seconds.
        seed: The seed of everything random on the server.
        device: auto (a GPU if there is one), cpu, cuda, …
        fedavg: Further arguments of Flower's FedAvg.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        public: Any,
        classes: int,
        features: str | FeaturesOf = "features",
        distill_steps: int = DISTILL_STEPS,
        distill_lr: float = 1e-4,
        distill_batch_size: int = 128,
        teacher_weights: Any = "odds",
        max_share: float = 1.0,
        examples: int = 0,
        scorer: str = "class-embedding",
        embedding_dim: int = 32,
        ridge: float = 0.01,
        quorum: float = 0.0,
        max_records: int = MAX_RECORDS,
        keep: str | Path | None = AUTO,
        release_timeout: float = 3600.0,
        seed: int = 0,
        device: str = "auto",
        **fedavg: Any,
    ) -> None:
        config = Config(
            seed=seed,
            device=device,
            prototypes=(ONLY_PROTOTYPE,),
            head_init="random",  # the user's own weights
            local=LocalConfig(
                epochs=1, batch_size=1
            ),  # clients train as they like, for steps in proportion to their records
            distill=DistillConfig(
                steps=distill_steps, lr=distill_lr, batch_size=distill_batch_size
            ),
            teachers=TeachersConfig(teacher_weights, max_share, examples=examples),
            privacy=PrivacyConfig(scorer, embedding_dim=embedding_dim, ridge=ridge),
            federation=FederationConfig(
                timeout=release_timeout, quorum=quorum, max_records=max_records
            ),
        )
        super().__init__(config, model, features, public, classes, keep, **fedavg)
        self._round: Round | None = None
        self._asked = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients that are selected for the first time for their release (P2, P3),
        then proceed as FedAvg.
        """
        self._load(server_round, arrays)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        nodes = {
            str(message.metadata.dst_node_id): message.metadata.dst_node_id
            for message in messages
        }
        failures = self._collect_releases(grid, nodes)
        self._asked = len(nodes)
        self._round = Round.start(
            self.server, self._embedding, self.state, list(nodes), Costs()
        )
        self._round.failures += failures
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the models and distil (T2, T3). An invalid model loses that client's
        contribution, not the round.
        """
        answers, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        # metrics do not depend on the order of arrival
        answers.sort(key=lambda message: message.metadata.src_node_id)
        current = self._round
        config = self.server.config
        if current is None or not answers:
            return None, None
        known = len(current.failures)
        good, failures = check_replies(
            answers, self._sent, self.weighted_by_key, config.federation.max_records
        )
        for reply in good:
            self._model.load_state_dict(reply.model.to_torch_state_dict())
            current.add(reply.update(server_round, flatten_state(self._model)))
        current.failures += failures
        for failure in current.failures[known:]:
            log.warning(
                "node %s is left out of round %d: %s",
                failure.client,
                server_round,
                failure.reason[:MAX_REASON],
            )
        kept = [reply.content for reply in good if reply.node in current.client_metrics]
        if len(kept) < quorum(config, self._asked):
            log.warning(
                "round %d is lost: %d of %d models can be used",
                server_round,
                len(kept),
                self._asked,
            )
            return None, None
        return self._finish(current), self._metrics(current, kept)

    def _finish(self, current: Round) -> ArrayRecord:
        self.state = current.finish(self.state)
        load_state(self._model, self.state.weights[ONLY_PROTOTYPE.label])
        return ArrayRecord(self._model.state_dict())

    def _metrics(self, current: Round, kept: list[RecordDict]) -> MetricRecord:
        """Return the app's own metrics as Flower aggregates them, and the metrics of
        the distillation.
        """
        metrics = self.train_metrics_aggr_fn(kept, self.weighted_by_key)
        result = self.state.history[-1]
        if result.distill_loss is None or result.effective_teachers is None:
            total = current.total
            text = (
                "round %d is plain FedAvg: %d of %d models are of clients with a "
                "release"
            )
            log.warning(text, current.number, total.teachers, total.clients)
        else:
            metrics["fedaux-distill-loss"] = result.distill_loss
            metrics["fedaux-teachers"] = result.effective_teachers
        return metrics

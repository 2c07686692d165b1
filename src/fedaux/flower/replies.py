"""Which of a round's replies can be averaged: Flower's FedAvg takes them all, or gives up on all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedaux.core.messages import Arrays, Failure, Update
from fedaux.flower.serialization import MessageError, from_array
from fedaux.flower.validation import InvalidReplyError, validate_weights


@dataclass(frozen=True, eq=False)
class TrainReply:
    """A reply that can be averaged: the model in it, and the number of records behind it."""

    node: str
    content: RecordDict
    model: ArrayRecord
    records: int

    def update(self, round_: int, weights: Arrays) -> Update:
        """With `weights` as flat arrays. The app trains without noise, and its account is known from its release."""
        return Update(
            self.node, round_, self.records, 0.0, 0.0, noise=0.0, rate=1.0, steps=0, account="", weights=weights
        )


def check_replies(
    replies: Iterable[Message], sent: Arrays, size_key: str, max_records: int
) -> tuple[list[TrainReply], list[Failure]]:
    """Models like the one that was sent, with metrics like most others'; and what is wrong with the other replies."""
    forms = [(message, form(message.content)) for message in replies]
    usual = Counter(text for _, text in forms).most_common(1)
    good, failures = [], []
    for message, text in forms:
        node = str(message.metadata.src_node_id)
        try:
            if text != usual[0][0]:
                raise InvalidReplyError(f"its reply holds {text}; those of most others hold {usual[0][0]}")
            good.append(TrainReply(node, message.content, *read_model(message.content, sent, size_key, max_records)))
        except (InvalidReplyError, MessageError) as error:
            failures.append(Failure(node, str(error)))
    return good, failures


def read_model(content: RecordDict, sent: Arrays, size_key: str, max_records: int) -> tuple[ArrayRecord, int]:
    """(the one model of a reply, like the one that was sent and finite; a size that can be believed)."""
    models = [record for record in content.values() if isinstance(record, ArrayRecord)]
    metrics = [record for record in content.values() if isinstance(record, MetricRecord)]
    if len(models) != 1 or len(metrics) != 1:
        raise InvalidReplyError(
            f"sends {len(models)} ArrayRecords and {len(metrics)} MetricRecords, one of each is expected"
        )
    size = metrics[0].get(size_key, 0)
    if isinstance(size, list) or not 1 <= size <= max_records or size != int(size):
        raise InvalidReplyError(f"states {size_key} = {size}; whole numbers from 1 to {max_records} are believed")
    validate_weights(sent, {name: from_array(array) for name, array in models[0].items()})
    return models[0], int(size)


def form(content: RecordDict) -> str:
    """Records and metrics by name, lists by length: replies that agree in it can be averaged."""
    metrics = {name: record for name, record in content.items() if isinstance(record, MetricRecord)}
    lengths = {
        name: sorted((key, len(value) if isinstance(value, list) else 0) for key, value in record.items())
        for name, record in metrics.items()
    }
    return f"{sorted(content)} with metrics {lengths}"

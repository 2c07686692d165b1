"""Which of a round's replies can be averaged: Flower's FedAvg takes them all, or gives up on all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedaux.core.messages import Arrays, Failure
from fedaux.flower.serialization import MessageError, from_array
from fedaux.flower.validation import MAX_RECORDS, InvalidReplyError, validate_weights


@dataclass(frozen=True, eq=False)
class Trained:
    """A reply that can be averaged, and the model in it."""

    node: str
    message: Message
    model: ArrayRecord


def sane(answers: Iterable[Message], sent: Arrays, size_key: str) -> tuple[list[Trained], list[Failure]]:
    """Models like the one that was sent, with metrics like most others'; and what is wrong with the other replies."""
    forms = [(message, form(message.content)) for message in answers]
    usual = Counter(told for _, told in forms).most_common(1)
    found, failures = [], []
    for message, told in forms:
        node = str(message.metadata.src_node_id)
        try:
            if told != usual[0][0]:
                raise InvalidReplyError(f"its reply holds {told}; those of most others hold {usual[0][0]}")
            found.append(Trained(node, message, model_in(message.content, sent, size_key)))
        except (InvalidReplyError, MessageError) as error:
            failures.append(Failure(node, str(error)))
    return found, failures


def model_in(content: RecordDict, sent: Arrays, size_key: str) -> ArrayRecord:
    """The one model of a reply, like the one that was sent and finite; with a size that can be believed."""
    models = [record for record in content.values() if isinstance(record, ArrayRecord)]
    metrics = [record for record in content.values() if isinstance(record, MetricRecord)]
    if len(models) != 1 or len(metrics) != 1:
        raise InvalidReplyError(
            f"sends {len(models)} ArrayRecords and {len(metrics)} MetricRecords, one of each is expected"
        )
    size = metrics[0].get(size_key, 0)
    if isinstance(size, list) or not 0 < size <= MAX_RECORDS:
        raise InvalidReplyError(f"states {size_key} = {size}; above 0 and up to {MAX_RECORDS} is believed")
    validate_weights(sent, {name: from_array(array) for name, array in models[0].items()})
    return models[0]


def form(content: RecordDict) -> str:
    """Records and metrics by name, lists by length: replies that agree in it can be averaged."""
    metrics = {name: record for name, record in content.items() if isinstance(record, MetricRecord)}
    lengths = {
        name: sorted((key, len(value) if isinstance(value, list) else 0) for key, value in record.items())
        for name, record in metrics.items()
    }
    return f"{sorted(content)} with metrics {lengths}"

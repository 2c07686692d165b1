"""Message handlers never reply with the text of an error, which may quote a record:
only with a `Refusal`.

The reason stays in the client's own log, where it may quote a record, in the log of
events (`core/event_log.py`), which may be collected elsewhere, it does not.
"""

from __future__ import annotations

import logging
import time
import traceback
from functools import wraps
from pathlib import Path

from flwr.app import ConfigRecord, Context, Error, Message

from fedaux.client.approvals import ApprovalError, LogError
from fedaux.config.parsing import ConfigError
from fedaux.core.errors import SettingsError
from fedaux.core.event_log import EventLog, printable
from fedaux.core.failures import OrderError, Refusal
from fedaux.flower.in_process import CLIENT_EXCEPTION, Handler
from fedaux.flower.serialization import MessageError
from fedaux.privacy.accounting import BudgetError

log = logging.getLogger(__name__)


def redact_errors(handler: Handler) -> Handler:
    """Wrap a message handler so that it returns its reply or a `Refusal`, and never
    raises.
    """

    @wraps(handler)
    def redacted(message: Message, context: Context) -> Message:
        name = handler.__name__
        start = time.monotonic()
        try:
            events = EventLog.from_environment()
        except (
            OSError
        ):  # a log that cannot be written is no reason to fail, nor to send its path
            log.exception("Cannot write the log of events")
            events = EventLog(None)
        try:
            reply = handler(message, context)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is Refusal.FAILED:
                log.exception("%s failed", name)
            else:
                log.error("%s is refused: %s", name, error)
            text = f"{name}: {without_records(error)}"
            _write(
                events,
                "order-refused",
                text,
                message,
                context,
                task=name,
                kind=refusal.value,
            )
            return refusal_reply(message, error)
        seconds = round(time.monotonic() - start, 3)
        _write(
            events, "order-answered", name, message, context, task=name, seconds=seconds
        )
        return reply

    return redacted


def refusal_reply(message: Message, error: Exception) -> Message:
    """Make the reply to an order that has ended in an error: its category is all that
    leaves.
    """
    return Message(Error(CLIENT_EXCEPTION, refusal_of(error).value), reply_to=message)


def without_records(error: Exception) -> str:
    """Return the text for a log that leaves the machine: only type and place of an
    error that may quote a record.
    """
    if refusal_of(error) is not Refusal.FAILED:
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"


def _write(
    log: EventLog,
    event: str,
    text: str,
    message: Message,
    context: Context,
    **facts: object,
) -> None:
    """Log an event with the client and the round of the order, if it names any, else
    with all clients of the node.
    """
    scalars = message.content.get("fedaux") if message.has_content() else None
    order = dict(scalars) if isinstance(scalars, ConfigRecord) else {}
    log.run = printable(str(order.get("run", "")))
    round_ = order.get("round")
    level = logging.INFO if event == "order-answered" else logging.WARNING
    site = printable(str(order.get("client", context.node_config.get("clients", ""))))
    log.write(
        event, text, level, site, round_ if isinstance(round_, int) else None, **facts
    )
    log.close()


def refusal_of(error: Exception) -> Refusal:
    """Classify an error. All categories but `FAILED` depend on orders and settings
    only, not on records.
    """
    if isinstance(error, BudgetError):
        return Refusal.BUDGET
    if isinstance(error, ApprovalError | LogError):
        return Refusal.APPROVAL
    if isinstance(error, (OrderError, MessageError)):
        return Refusal.ORDER
    if isinstance(error, (ConfigError, SettingsError)):
        return Refusal.SETTINGS
    return Refusal.FAILED

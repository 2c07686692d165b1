"""Message handlers never reply with the text of an error, which may quote a record: only with a `Refusal`.

The reason stays in the client's own log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps

from flwr.app import Context, Error, Message

from fedaux.config.parsing import ConfigError
from fedaux.core.messages import OrderError, Refusal
from fedaux.flower.in_process import CLIENT_EXCEPTION
from fedaux.flower.node_settings import SettingsError
from fedaux.flower.serialization import MessageError
from fedaux.privacy.accounting import BudgetError

Handler = Callable[[Message, Context], Message]
log = logging.getLogger(__name__)


def redact_errors(handler: Handler) -> Handler:
    """Wrap a message handler so that it returns its reply or a `Refusal`, and never raises."""

    @wraps(handler)
    def redacted(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is Refusal.FAILED:
                log.exception("%s failed", handler.__name__)
            else:
                log.error("%s is refused: %s", handler.__name__, error)
            return Message(Error(CLIENT_EXCEPTION, refusal.value), reply_to=message)

    return redacted


def refusal_of(error: Exception) -> Refusal:
    """All but `FAILED` depend on orders and settings only, not on records."""
    if isinstance(error, BudgetError):
        return Refusal.BUDGET
    if isinstance(error, (OrderError, MessageError)):
        return Refusal.ORDER
    if isinstance(error, (ConfigError, SettingsError)):
        return Refusal.SETTINGS
    return Refusal.FAILED

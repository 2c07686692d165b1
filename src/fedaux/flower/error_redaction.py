"""What a client says when it does not do as it is told: one of four words. The reason stays in its own log.

An error's text may quote a patient's line; so no text of any error crosses, from whichever handler.
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
    """The same handler, out of which nothing comes but a reply or a `Refusal`."""

    @wraps(handler)
    def within(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is Refusal.FAILED:
                log.exception("%s failed", handler.__name__)
            else:
                log.error("%s is refused: %s", handler.__name__, error)
            return Message(Error(CLIENT_EXCEPTION, refusal.value), reply_to=message)

    return within


def refusal_of(error: Exception) -> Refusal:
    """Which word: those of the first three say something of orders and settings only, not of records."""
    if isinstance(error, BudgetError):
        return Refusal.BUDGET
    if isinstance(error, (OrderError, MessageError)):
        return Refusal.ORDER
    if isinstance(error, (ConfigError, SettingsError)):
        return Refusal.SETTINGS
    return Refusal.FAILED
